// WarmStore: the part of a scope's memory that outlives the process.
//
// Stored data are hints: what cannot be stored or loaded is dropped and
// counted, and no request waits for it.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_STORE_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_STORE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "common/base/types.h"
#include "common/drafting/draft_session.h"

namespace foretoken::trie_drafter {

// Identifies a scope of one tokenizer by a hash, so that stores do not learn
// the scope's name.
struct ScopeKey {
  Sha256Digest digest;

  static ScopeKey Of(const std::string& cache_scope,
                     const std::string& tokenizer_fingerprint);
  friend bool operator==(const ScopeKey& a, const ScopeKey& b) {
    return a.digest == b.digest;
  }
  template <typename H>
  friend H AbslHashValue(H h, const ScopeKey& key) {
    return H::combine(std::move(h), key.digest);
  }
};

// Values as in stored records.
enum class RecordKind : uint8_t {
  kOutput = 1,   // one output, for the history
  kPhrases = 2,  // a batch of phrases
  kTexts = 3,    // a batch of outputs, for the scope's prior
};

// Stored records of one scope, oldest first. The last outputs are among the
// texts too if those are stored.
struct StoredScope {
  std::vector<std::vector<TokenId>> outputs;
  std::vector<Phrase> phrases;
  std::vector<std::vector<TokenId>> texts;

  bool empty() const {
    return outputs.empty() && phrases.empty() && texts.empty();
  }
};

// Thread-safe; no method blocks on anything outside the process.
class WarmStore {
 public:
  virtual ~WarmStore() = default;

  // Calls `done` once, on a thread of the store, with what was found; never if
  // the load was dropped or failed.
  using Loaded = std::function<void(StoredScope)>;
  virtual void Load(const ScopeKey& key, Loaded done) = 0;

  // Adds one record: an output, phrases or texts, oldest first. Written in the
  // background; dropped if the store's queue is full.
  virtual void Save(const ScopeKey& key, RecordKind kind,
                    const std::vector<std::vector<TokenId>>& sequences) = 0;
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_STORE_H_
