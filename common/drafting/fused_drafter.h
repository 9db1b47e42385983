// Fused drafting, the model-free core of mode `auto`: one token tree, grown
// best first over next-token probabilities that are blended from the request's
// own text, the outputs of earlier requests, static priors and the target's
// candidates after verified rows (next_token_model.h). The trust in each source
// is learned from what was accepted (trust.h). Exact repeats are followed to
// the full depth of the tree.
//
// State per request: a count trie over a window of its prompt and output, the
// candidates after its verified rows, and trust factors that start as the
// shared ones. State per scope (FusedMemory): a count trie over a window of
// finished outputs, the candidates after tokens of these outputs, and the
// shared trust factors; a request adds its own when it ends. Prompts never
// enter it, nor contexts that were only drafted; but what the target found
// likely in its output may be words of the prompt.
//
// Deterministic: equal calls give equal trees; with a shared FusedMemory, equal
// calls in equal order. A drafter is owned by one thread; drafters of different
// threads may share one FusedMemory.
#ifndef FORETOKEN_COMMON_DRAFTING_FUSED_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_FUSED_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/recycled_candidates.h"
#include "common/drafting/static_prior.h"
#include "common/drafting/trust.h"
#include "common/drafting/window_trie.h"

namespace foretoken {

// State shared by the requests of one cache scope. Thread-safe: readers hold
// the lock for one round or a few hundred prompt tokens, writers for a few
// hundred output tokens or the candidates of one request, which keeps waits
// short.
class FusedMemory {
 public:
  // Maximum number of contexts with candidates: 4 MiB.
  static constexpr size_t kRecycledSights = size_t{1} << 16;

  explicit FusedMemory(size_t history_tokens)
      : history_(history_tokens), recycled_(kRecycledSights) {}

  // Adds one finished output.
  void AddOutput(absl::Span<const TokenId> output)
      ABSL_LOCKS_EXCLUDED(writing_, mu_);
  // Adds the own sights of a request that has ended.
  void AddRecycled(const RecycledCandidates& of_request)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Forget() ABSL_LOCKS_EXCLUDED(writing_, mu_);

  SharedTrust trust() const ABSL_LOCKS_EXCLUDED(mu_);
  // Adds what a request learned, which began with `before` and ended with
  // `after`, to what requests that ended in between have learned.
  void Learn(const SharedTrust& before, const SharedTrust& after)
      ABSL_LOCKS_EXCLUDED(mu_);

  size_t MemoryBytes() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t Tokens() const ABSL_LOCKS_EXCLUDED(mu_);

  // For drafters: the history and the candidates. Hold mu(), shared at least,
  // while reading them.
  absl::Mutex& mu() const ABSL_LOCK_RETURNED(mu_) { return mu_; }
  const WindowTrie& history() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return history_;
  }
  const RecycledCandidates& recycled() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return recycled_;
  }

 private:
  absl::Mutex writing_;  // serialises outputs; acquired before mu_
  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(writing_);
  WindowTrie history_ ABSL_GUARDED_BY(mu_);
  RecycledCandidates recycled_ ABSL_GUARDED_BY(mu_);
  SharedTrust trust_ ABSL_GUARDED_BY(mu_);
};

struct FusedOptions {
  std::shared_ptr<const StaticPrior> prior;  // null: none
  // Prior of the scope's own outputs, laid over it; null: none.
  std::shared_ptr<const StaticPrior> scope_prior;

  // Which of the request's own text, the history and the candidates of verified
  // rows to use (for ablation).
  bool use_request = true;
  bool use_history = true;
  bool use_recycled = true;
  // Whether outputs of this drafter's requests enter the history and what they
  // learn enters the shared trust. If not, the history holds only what
  // AddHistory added, and every request starts from the same shared trust.
  bool keep_history = true;

  // Window sizes in tokens, rounded up to a power of two; the oldest tokens are
  // evicted. Under 300 bytes per token each, whatever the text (window_trie.h).
  // Until a request ends, up to two history windows of its output are held as
  // well.
  size_t request_tokens = size_t{1} << 17;
  size_t history_tokens = size_t{1} << 18;
  // Maximum number of contexts of the request with candidates, rounded up to a
  // power of two; 64 bytes each, none before the first.
  size_t recycled_sights = size_t{1} << 13;

  // Path probability below which a node does not pay for its row; 0..1.
  float price = 0.0f;

  // Shared with other drafters of the scope; null: the drafter has its own.
  std::shared_ptr<FusedMemory> memory;
};

// `options.price` is clamped to 0..1.
std::unique_ptr<Drafter> MakeFusedDrafter(const FusedOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_FUSED_DRAFTER_H_
