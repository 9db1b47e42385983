#include "common/drafting/phrase_pool_drafter.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken {
namespace {

// Probability of a phrase's first token, by its rank among the newest phrases,
// and of each further token given the previous ones: relative frequencies on
// recorded Vicuna-7B outputs to Spec-Bench. The last entry applies to all later
// ranks or steps. The values rank drafts against those of other drafters and do
// not affect what is drafted.
constexpr float kFirstProb[] = {0.32f, 0.14f, 0.09f};
constexpr float kStepProb[] = {0.49f, 0.63f, 0.70f, 0.75f, 0.78f, 0.82f};

template <size_t kSize>
float At(const float (&table)[kSize], size_t index) {
  return table[std::min(index, kSize - 1)];
}

// Returns the child of `parent` with `token`, or -1. Linear: trees here are
// small.
int32_t FindChild(const DraftTree& tree, int32_t parent, TokenId token) {
  for (int32_t node = parent + 1; node < tree.size(); ++node) {
    if (tree.parents[node] == parent && tree.tokens[node] == token) return node;
  }
  return -1;
}

}  // namespace

PhrasePoolDrafter::PhrasePoolDrafter(const PhrasePoolDrafterOptions& options)
    : options_(options),
      pool_(options.pool),
      window_(options.pool.phrase_tokens) {
  FORETOKEN_CHECK(options.suffixes >= 1 &&
                  options.suffixes <= PhrasePoolDrafterOptions::kMaxSuffixes);
}

void PhrasePoolDrafter::StartRequest(absl::Span<const TokenId> prompt) {
  window_.Reset();
  // The pool holds exactly AddHistory's phrases now: save them for later
  // requests, and start from them.
  if (history_in_pool_) {
    warm_ = pool_.Snapshot();
    history_in_pool_ = false;
  } else if (!options_.keep) {
    StartFromHistory();
  }
  Commit(prompt);
}

void PhrasePoolDrafter::Commit(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    window_.Push(token);
    if (window_.full()) pool_.Insert(window_.tokens());
  }
}

void PhrasePoolDrafter::Draft(int max_nodes, DraftTree& tree) {
  tree.Clear();
  if (window_.tokens().empty()) return;
  pool_.Newest(window_.tokens().back(), options_.suffixes, newest_);
  for (size_t rank = 0; rank < newest_.size(); ++rank) {
    int32_t at = kRootParent;
    float prob = At(kFirstProb, rank);
    for (size_t i = 1; i < newest_[rank].size(); ++i) {
      const TokenId token = newest_[rank][i];
      int32_t node = FindChild(tree, at, token);
      if (node < 0) {
        if (tree.size() == max_nodes) return;
        node = tree.Add(token, at, prob);
      }
      at = node;
      // Given the path: probabilities multiply along it.
      prob = tree.probs[node] * At(kStepProb, i - 1);
    }
  }
}

void PhrasePoolDrafter::StartFromHistory() {
  pool_.Clear();
  FORETOKEN_CHECK(pool_.MergeOlder(warm_).ok());
}

void PhrasePoolDrafter::AddHistory(absl::Span<const TokenId> output) {
  // The first output of a series: the pool may still hold a request's phrases.
  if (!options_.keep && !history_in_pool_) {
    StartFromHistory();
    history_in_pool_ = true;
  }
  pool_.InsertWindows(output);
}

void PhrasePoolDrafter::ForgetShared() {
  pool_.Clear();
  warm_.clear();
  history_in_pool_ = false;
}

size_t PhrasePoolDrafter::RequestBytes() const {
  return options_.keep ? 0 : pool_.MemoryBytes();
}

size_t PhrasePoolDrafter::SharedBytes() const {
  return options_.keep ? pool_.MemoryBytes()
                       : warm_.capacity() * sizeof(TokenId);
}

int64_t PhrasePoolDrafter::SharedTokens() const {
  return options_.keep
             ? pool_.size()
             : static_cast<int64_t>(warm_.size()) / options_.pool.phrase_tokens;
}

}  // namespace foretoken
