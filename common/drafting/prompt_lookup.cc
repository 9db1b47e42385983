#include "common/drafting/prompt_lookup.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr size_t kMinSlots = 256;

// Probability that the next copied token is right, given that all previous ones
// were, by its position in the copy: relative frequencies on recorded Vicuna-7B
// outputs to Spec-Bench. The last entry applies to all later positions. The
// values rank drafts against those of other drafters and do not affect what is
// drafted.
constexpr float kStepProb[] = {0.34f, 0.60f, 0.71f, 0.78f, 0.80f, 0.86f};

size_t Hash(const TokenId* ngram, int n) {
  uint64_t hash = 0;
  for (int i = 0; i < n; ++i) {
    hash = (hash ^ static_cast<uint32_t>(ngram[i])) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return static_cast<size_t>(hash);
}

}  // namespace

PromptLookupDrafter::PromptLookupDrafter(const PromptLookupOptions& options)
    : options_(options), tail_(options.max_n), indices_(options.max_n) {
  FORETOKEN_CHECK(options.max_n >= 1 &&
                  options.max_n <= PromptLookupOptions::kMaxN);
  FORETOKEN_CHECK(options.tokens >= 1 &&
                  options.tokens <= PromptLookupOptions::kMaxTokens);
  FORETOKEN_CHECK(options.max_context > options.max_n);
}

void PromptLookupDrafter::StartRequest(absl::Span<const TokenId> prompt) {
  context_ = std::vector<TokenId>();  // releases the memory
  context_.reserve(std::min<size_t>(prompt.size() + prompt.size() / 2,
                                    options_.max_context));
  tail_.Reset();
  for (Index& index : indices_) {
    index.slots.assign(kMinSlots, -1);
    index.slots.shrink_to_fit();
    index.used = 0;
  }
  Commit(prompt);
}

void PromptLookupDrafter::Commit(absl::Span<const TokenId> tokens) {
  tail_.Append(tokens);
  for (const TokenId token : tokens) {
    if (context_.size() == static_cast<size_t>(options_.max_context)) return;
    context_.push_back(token);
    // Only now do the n-grams that end at the previous token have a
    // continuation; indexed earlier, the last tokens would match themselves.
    IndexNgramEndingAt(static_cast<int32_t>(context_.size()) - 2);
  }
}

// Returns the slot that holds this n-gram, or the free slot for it.
size_t PromptLookupDrafter::Slot(const Index& index, int n,
                                 const TokenId* ngram) const {
  const size_t mask = index.slots.size() - 1;
  size_t slot = Hash(ngram, n) & mask;
  while (index.slots[slot] >= 0) {
    const TokenId* held = context_.data() + index.slots[slot] - n + 1;
    if (std::equal(held, held + n, ngram)) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void PromptLookupDrafter::IndexNgramEndingAt(int32_t end) {
  for (int n = 1; n <= options_.max_n && n <= end + 1; ++n) {
    Index& index = indices_[n - 1];
    const size_t slot = Slot(index, n, context_.data() + end - n + 1);
    if (index.slots[slot] >= 0) {
      // kFirst keeps the position it has.
      if (options_.match == PromptLookupOptions::Match::kLatest) {
        index.slots[slot] = end;
      }
      continue;
    }
    index.slots[slot] = end;
    ++index.used;
    // Load factor at most two thirds.
    if (static_cast<size_t>(index.used) * 3 > index.slots.size() * 2) {
      Grow(index, n, index.slots.size() * 2);
    }
  }
}

void PromptLookupDrafter::Grow(Index& index, int n, size_t slots) {
  std::vector<int32_t> old(slots, -1);
  old.swap(index.slots);
  for (const int32_t end : old) {
    if (end < 0) continue;
    index.slots[Slot(index, n, context_.data() + end - n + 1)] = end;
  }
}

void PromptLookupDrafter::Draft(int max_nodes, DraftTree& tree) {
  tree.Clear();
  const absl::Span<const TokenId> tail = tail_.tokens();
  for (int n = static_cast<int>(tail.size()); n >= 1; --n) {
    const Index& index = indices_[n - 1];
    const int32_t end = index.slots[Slot(index, n, tail.last(n).data())];
    if (end < 0) continue;
    // A copy may run into the tokens it is appended to, but not past the end.
    const int length =
        std::min({options_.tokens, max_nodes,
                  static_cast<int>(context_.size()) - (end + 1)});
    float prob = 1.0f;
    for (int i = 0; i < length; ++i) {
      prob *= kStepProb[std::min<size_t>(i, std::size(kStepProb) - 1)];
      tree.Add(context_[end + 1 + i], i == 0 ? kRootParent : i - 1, prob);
    }
    return;
  }
}

size_t PromptLookupDrafter::RequestBytes() const {
  size_t bytes = context_.capacity() * sizeof(TokenId);
  for (const Index& index : indices_) {
    bytes += index.slots.capacity() * sizeof(int32_t);
  }
  return bytes;
}

}  // namespace foretoken
