// Fused drafting, the model-free core of mode `auto`: one token tree, grown
// best first over next-token probabilities that are blended from the request's
// own text, the outputs of earlier requests and a static prior
// (next_token_model.h), with trust in each learned from what was accepted
// (trust.h). Exact repeats are followed as far as the tree is deep.
//
// State of a request: a count trie over a window of its prompt and output, and
// trust that starts as the shared one. State of a scope (FusedMemory): a count
// trie over a window of finished outputs, and the shared trust, which takes in
// what a request learned when it ends. Prompts never enter it.
//
// Deterministic: equal calls, and with a shared FusedMemory equal calls in
// equal order, give equal trees. A drafter is owned by one thread; drafters of
// different threads may share one FusedMemory.
#ifndef FORETOKEN_COMMON_DRAFTING_FUSED_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_FUSED_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/static_prior.h"
#include "common/drafting/trust.h"
#include "common/drafting/window_trie.h"

namespace foretoken {

// What the requests of one cache scope share. Thread-safe: readers hold the
// lock for a round or a few hundred tokens of a prompt, a writer for a few
// hundred tokens of an output, so that none waits long for another.
class FusedMemory {
 public:
  explicit FusedMemory(size_t history_tokens) : history_(history_tokens) {}

  // One finished output.
  void AddOutput(absl::Span<const TokenId> output)
      ABSL_LOCKS_EXCLUDED(writing_, mu_);
  void Forget() ABSL_LOCKS_EXCLUDED(writing_, mu_);

  SharedTrust trust() const ABSL_LOCKS_EXCLUDED(mu_);
  // A request that began with `before` ended with `after`: its steps are added
  // to those of requests that ended in between.
  void Learn(const SharedTrust& before, const SharedTrust& after)
      ABSL_LOCKS_EXCLUDED(mu_);

  size_t MemoryBytes() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t Tokens() const ABSL_LOCKS_EXCLUDED(mu_);

  // For drafters: the history, read only while mu() is held, shared at least.
  absl::Mutex& mu() const ABSL_LOCK_RETURNED(mu_) { return mu_; }
  const WindowTrie& history() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return history_;
  }

 private:
  absl::Mutex writing_;  // one output at a time; before mu_
  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(writing_);
  WindowTrie history_ ABSL_GUARDED_BY(mu_);
  SharedTrust trust_ ABSL_GUARDED_BY(mu_);
};

struct FusedOptions {
  std::shared_ptr<const StaticPrior> prior;  // null: none

  // Sources of a request's own and of earlier outputs (for ablation).
  bool use_request = true;
  bool use_history = true;
  // Outputs of the requests of this drafter enter the history, and the shared
  // trust outlives a request. If not, the history is what AddHistory gave, and
  // every request starts from the shared trust and leaves it as it is.
  bool keep_history = true;

  // Windows, in tokens, rounded up to a power of two: the oldest go first.
  // Under 300 bytes a token each, whatever the text (window_trie.h). Until a
  // request ends, at most two history windows of its output are held besides.
  size_t request_tokens = size_t{1} << 17;
  size_t history_tokens = size_t{1} << 18;

  // A node of a lower path probability does not pay for its row; 0..1.
  float price = 0.0f;

  // Shared with other drafters of the scope; null: the drafter's own.
  std::shared_ptr<FusedMemory> memory;
};

// `options.price` is clamped to 0..1.
std::unique_ptr<Drafter> MakeFusedDrafter(const FusedOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_FUSED_DRAFTER_H_
