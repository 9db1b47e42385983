// Fused drafting, the model-free core of mode `auto`: one token tree, grown
// best first over next-token probabilities that are blended from the request's
// own text, the outputs of earlier requests and a static prior
// (next_token_model.h), with trust in each learned from what was accepted
// (trust.h). Exact repeats are followed as far as the tree is deep.
//
// State of a request: a count trie over a window of its prompt and output.
// State of a scope (FusedMemory): a count trie over a window of finished
// outputs, and the shared trust. Prompts never enter it.
//
// Deterministic: equal calls give equal trees. Owned by one thread; drafters
// that share one FusedMemory take turns.
#ifndef FORETOKEN_COMMON_DRAFTING_FUSED_DRAFTER_H_
#define FORETOKEN_COMMON_DRAFTING_FUSED_DRAFTER_H_

#include <cstddef>
#include <memory>

#include "common/drafting/drafter.h"
#include "common/drafting/static_prior.h"
#include "common/drafting/trust.h"
#include "common/drafting/window_trie.h"

namespace foretoken {

// What the requests of one cache scope share.
struct FusedMemory {
  explicit FusedMemory(size_t history_tokens) : history(history_tokens) {}
  WindowTrie history;
  SharedTrust trust;
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
