// GrammarCache: grammars by their constraint, each compiled once for the
// requests that share it.
//
// Requests that ask for the same constraint at the same time wait for one
// compilation. A caller's grammars take at most half of the bytes: its least
// recently used ones make room for its new ones, and where all callers together
// have too much, those of the caller that holds the most do. A grammar counts
// for the caller that asked for it first; others use it all the same.
// Thread-safe.
#ifndef FORETOKEN_COMMON_GRAMMAR_GRAMMAR_CACHE_H_
#define FORETOKEN_COMMON_GRAMMAR_GRAMMAR_CACHE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/grammar/compile.h"
#include "common/grammar/constraint.h"
#include "common/grammar/grammar.h"

namespace foretoken::grammar {

struct GrammarCacheOptions {
  int64_t max_constraint_bytes = int64_t{1} << 20;  // of one, as its source
  int64_t cache_bytes = int64_t{64} << 20;          // of all grammars kept
};

class GrammarCache {
 public:
  explicit GrammarCache(const GrammarCacheOptions& options);
  GrammarCache(const GrammarCache&) = delete;
  GrammarCache& operator=(const GrammarCache&) = delete;

  // The grammar if it is there, else null; never waits for a compilation.
  std::shared_ptr<const Grammar> Find(const Constraint& constraint)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The grammar, compiled if it is not there, which takes a time within the
  // limits of Compile; so does waiting for another thread that compiles it.
  // Errors are those of Compile, and are not kept. One that is larger than a
  // caller's half is returned but not kept. `constraint` must not be empty.
  absl::StatusOr<std::shared_ptr<const Grammar>> Get(
      const std::string& caller, const Constraint& constraint)
      ABSL_LOCKS_EXCLUDED(mu_);

  const GrammarCacheOptions& options() const { return options_; }
  int64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);   // of all grammars
  int64_t size() const ABSL_LOCKS_EXCLUDED(mu_);    // number of them
  int64_t misses() const ABSL_LOCKS_EXCLUDED(mu_);  // compilations so far

 private:
  struct Compilation {
    bool done = false;
    absl::StatusOr<std::shared_ptr<const Grammar>> result;
  };
  struct Holder;
  struct Entry {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
    int64_t bytes = 0;
    Holder* holder = nullptr;
  };
  // A caller with grammars.
  struct Holder {
    std::string name;
    std::list<Entry> entries;  // the one used last comes first
    int64_t bytes = 0;
  };

  std::shared_ptr<const Grammar> FindLocked(absl::string_view key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Keep(const std::string& caller, std::string key,
            std::shared_ptr<const Grammar> grammar)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops the holder's least recently used grammar, and a holder without any.
  void DropOldest(Holder& holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Holder& Largest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const GrammarCacheOptions options_;
  const CompileLimits limits_;
  mutable absl::Mutex mu_;
  std::map<std::string, Holder> holders_ ABSL_GUARDED_BY(mu_);  // they stay put
  // Keys are those of the entries.
  absl::flat_hash_map<absl::string_view, std::list<Entry>::iterator> index_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::shared_ptr<Compilation>> running_
      ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t misses_ ABSL_GUARDED_BY(mu_) = 0;
};

// The memory of a grammar, about.
int64_t GrammarBytes(const Grammar& grammar);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_GRAMMAR_CACHE_H_
