#include "common/grammar/token_masks.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace foretoken::grammar {
namespace {

// Below smaller nodes, walking costs less than asking whether it is needed.
constexpr int32_t kWorthSkipping = 16;

}  // namespace

TokenMasks::TokenMasks(Automaton& automaton,
                       std::shared_ptr<const TokenVocabulary> vocabulary,
                       const Options& options)
    : automaton_(automaton),
      vocabulary_(std::move(vocabulary)),
      options_(options) {}

absl::StatusOr<std::shared_ptr<const TokenBits>> TokenMasks::Mask(
    Automaton::State state, int64_t max_work) {
  const auto found = kept_.find(state);
  if (found != kept_.end()) return found->second;
  const int64_t size = static_cast<int64_t>(vocabulary_->words()) * 8;
  // All go at once: the states of a text that goes on are soon there again.
  if (bytes_ + size > options_.max_bytes) {
    kept_.clear();
    bytes_ = 0;
  }
  auto mask = std::make_shared<TokenBits>(vocabulary_->words());
  FORETOKEN_RETURN_IF_ERROR(Compute(state, max_work, absl::MakeSpan(*mask)));
  ++computed_;
  bytes_ += size;
  kept_.emplace(state, mask);
  return mask;
}

absl::Status TokenMasks::Compute(Automaton::State state, int64_t max_work,
                                 absl::Span<uint64_t> mask) {
  const int64_t last_work = automaton_.work() + max_work;
  // Tokens of plain characters only are known to fit wherever that many may
  // follow; only the rest is walked.
  const TokenVocabulary::Slice& slice = vocabulary_->slice(
      automaton_.PlainCharacters(state, TokenVocabulary::kMostCharacters));
  if (slice.characters > 0) {
    std::copy(slice.tokens.begin(), slice.tokens.end(), mask.begin());
  }
  path_.resize(slice.rest.max_depth() + 1);
  path_[0] = state;
  const absl::Span<const TokenTrie::Node> nodes = slice.rest.nodes();
  const auto& class_of = automaton_.class_of();
  const int32_t count = static_cast<int32_t>(nodes.size());
  for (int32_t i = 0; i < count;) {
    const TokenTrie::Node& node = nodes[i];
    const Automaton::State next =
        automaton_.StepClass(path_[node.depth], class_of[node.byte]);
    if (next == Automaton::kDead) {
      // All tokens below share the dead prefix.
      i = node.skip;
    } else if (node.skip - i >= kWorthSkipping &&
               (next == path_[node.depth] || node.depth == 0) &&
               automaton_.StaysOn(next, slice.rest.groups_below(i),
                                  last_work)) {
      // All tokens below stay in this state (inside a string, for example), so
      // all of them fit.
      for (const TokenId token : slice.rest.tokens_from(i)) {
        SetToken(mask, token);
      }
      i = node.skip;
    } else {
      path_[node.depth + 1] = next;
      if (node.token >= 0) SetToken(mask, node.token);
      ++i;
    }
    // Looked at for every node, as one step may build much of the automaton.
    if (automaton_.work() > last_work) {
      return absl::ResourceExhaustedError(
          "a mask of the grammar takes too long to compute");
    }
  }
  // Tokens of equal bytes have one place in the trie.
  for (const auto& [token, twin] : vocabulary_->twins()) {
    if (HasToken(mask, token)) SetToken(mask, twin);
  }
  return automaton_.status();
}

}  // namespace foretoken::grammar
