// ScopePrior: the prior that a scope's outputs grow while it is served, and
// PriorCompactor: the thread that builds them.
//
// A scope keeps the tokens of its last outputs. What has left the history's
// window is counted now and then and published as a prior of the scope alone,
// which drafters lay over the one that all scopes share (fused_drafter.h); text
// that the history still holds would only be counted twice. Sessions that open
// later draft from the new prior, those that are open keep what they have. A
// counted token takes less memory than one in the history, and is known only
// after the next compaction.
//
// Outputs also leave in batches, for the warm store: with them the next process
// builds the same prior.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_SCOPE_PRIOR_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_SCOPE_PRIOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/base/types.h"
#include "common/drafting/fused_drafter.h"
#include "common/drafting/static_prior.h"
#include "services/trie_drafter/core/warm_record.h"
#include "services/trie_drafter/core/warm_store.h"

namespace foretoken::trie_drafter {

struct ScopePriorOptions {
  // Maximum tokens of outputs that are counted, document borders included; 0:
  // scopes have no prior of their own. A compaction takes up to 200 bytes for
  // each (40 for every n-gram length), and the sorting.
  int64_t max_tokens = 0;
  // New tokens to count before the next compaction, at least; an eighth of what
  // is counted, if that is more, so that a token is counted a bounded number of
  // times.
  int64_t compact_every = int64_t{1} << 15;
  int64_t max_bytes = int64_t{4} << 20;  // of a prior, without its text
  // Set by the service.
  int32_t vocab_size = 0;
  Sha256Digest tokenizer{};
};

class ScopePrior {
 public:
  using Texts = std::vector<std::vector<TokenId>>;  // oldest first

  // `history` may be null: everything is counted then.
  ScopePrior(const ScopePriorOptions& options,
             std::shared_ptr<const FusedMemory> history)
      : options_(options), history_(std::move(history)) {}

  struct Added {
    bool due = false;  // a compaction is due that was not due before
    Texts batch;       // full, to be stored; mostly empty
  };
  // Adds a finished output that the history has taken. Leaves out an output
  // with a token outside the vocabulary, and all but the last kMaxRecordTokens
  // tokens of one.
  Added Add(absl::Span<const TokenId> output) ABSL_LOCKS_EXCLUDED(mu_);

  // Takes the outputs that have not yet left in a batch.
  Texts TakeBatch() ABSL_LOCKS_EXCLUDED(mu_);

  // Adds stored texts, and the stored outputs that are not among them, as older
  // than all others; the history must have taken the outputs. True if a
  // compaction is due that was not due before.
  bool Restore(const Texts& texts, const Texts& outputs)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Builds and publishes the prior of what has left the history; true if there
  // is any. InvalidArgument if max_bytes is too small for the vocabulary.
  absl::StatusOr<bool> Compact() ABSL_LOCKS_EXCLUDED(mu_);

  // Null until the first compaction.
  std::shared_ptr<const StaticPrior> Get() const ABSL_LOCKS_EXCLUDED(mu_);

  int64_t counted_tokens() const ABSL_LOCKS_EXCLUDED(mu_);  // by Get()
  // Memory of the text and the prior.
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  bool InVocabulary(absl::Span<const TokenId> output) const;
  size_t InHistory() const;
  void DropOldest(size_t in_history) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tokens of text_, the oldest ones, that the history no longer holds.
  size_t Countable(size_t in_history) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Marks a compaction as due if `least` tokens are new; true if it was not.
  bool MarkDue(size_t in_history, size_t least)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ScopePriorOptions options_;
  const std::shared_ptr<const FusedMemory> history_;
  mutable absl::Mutex mu_;
  // Oldest first, a border after every output. At most max_tokens more than the
  // history holds.
  std::deque<TokenId> text_ ABSL_GUARDED_BY(mu_);
  size_t counted_ ABSL_GUARDED_BY(mu_) = 0;  // of text_, by the last compaction
  bool due_ ABSL_GUARDED_BY(mu_) = false;
  Texts batch_ ABSL_GUARDED_BY(mu_);
  size_t batch_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<const StaticPrior> prior_ ABSL_GUARDED_BY(mu_);
  int64_t prior_tokens_ ABSL_GUARDED_BY(mu_) = 0;
};

// One thread of low priority for all scopes. The destructor waits for the
// compaction under way and drops the others.
class PriorCompactor {
 public:
  // `compacted` is called on the thread, after each prior that was published.
  explicit PriorCompactor(std::function<void(const ScopeKey&)> compacted);
  ~PriorCompactor();

  // A scope that is evicted before its turn is left out. Bounded by the scopes
  // that exist: each is due once at a time.
  void Submit(const ScopeKey& key, const std::shared_ptr<ScopePrior>& prior)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Main() ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<void(const ScopeKey&)> compacted_;
  absl::Mutex mu_;
  std::deque<std::pair<ScopeKey, std::weak_ptr<ScopePrior>>> due_
      ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_SCOPE_PRIOR_H_
