#include "services/orchestrator/core/round/lookahead.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/mix.h"
#include "common/base/status_macros.h"

namespace foretoken::orchestrator {
namespace {

// Maximum n-grams of one request.
constexpr int64_t kMaxNgrams = int64_t{1} << 15;

// Initial probability of an n-gram's first token, by recency, and of each
// further token; the shared estimates correct them.
constexpr float kFirstProb[] = {0.3f, 0.15f, 0.1f, 0.05f};
constexpr float kStepProb = 0.7f;

// Spreads `i` over the prompt: guesses need not be good, only repeatable.
uint64_t Mix(uint64_t i) { return MixBits((i + 1) * kMixStep); }

// Children by token in a tree without equal siblings.
class Paths {
 public:
  explicit Paths(const TokenTree& tree) {
    for (int32_t i = 0; i < tree.size(); ++i) {
      // try_emplace keeps the first of equal children. There are none in trees
      // that were merged.
      child_.try_emplace({tree.parents()[i], tree.tokens()[i]}, i);
    }
  }
  // Returned for a missing child, and for any child of kNone.
  // Not -1, which is the root.
  static constexpr int32_t kNone = -2;
  int32_t Child(int32_t parent, TokenId token) const {
    const auto found = child_.find({parent, token});
    return found == child_.end() ? kNone : found->second;
  }

 private:
  absl::flat_hash_map<std::pair<int32_t, TokenId>, int32_t> child_;
};

int32_t FindOrAdd(DraftTree& tree, TokenId token, int32_t parent, float prob) {
  // Linear, in a tree of at most some hundred nodes; children come after their
  // parents.
  for (int32_t node = parent + 1; node < tree.size(); ++node) {
    if (tree.parents[node] == parent && tree.tokens[node] == token) return node;
  }
  return tree.Add(token, parent, prob);
}

}  // namespace

LookaheadSource::LookaheadSource(const LookaheadOptions& options)
    : options_(options), pool_({options.pool, options.ngram, kMaxNgrams}) {}

void LookaheadSource::Start(const DraftOpen&, absl::Span<const TokenId> text) {
  FORETOKEN_CHECK(!text.empty());
  pool_.Clear();
  last_ = text.back();
  levels_.assign(1, {});
  // Lookahead Decoding (arXiv:2402.02057) starts with random guesses; tokens of
  // the prompt, chosen by a fixed hash, make the same request draft the same
  // every time.
  for (int i = 0; i < options_.window + options_.ngram - 2; ++i) {
    levels_[0].push_back(text[Mix(i) % text.size()]);
  }
}

std::vector<TokenId> LookaheadSource::Answers(
    const VerifiedTree& verified) const {
  std::vector<TokenId> answers;
  // The verifier did not return its rows, as in the first round or after a
  // failover: the window stays as it is.
  if (static_cast<int>(verified.row_tokens.size()) !=
      verified.tree.size() + 1) {
    return answers;
  }
  const Paths paths(verified.tree);
  int32_t chain = kRootParent;
  for (size_t j = 0; j < levels_[0].size(); ++j) {
    if (j > 0) chain = paths.Child(chain, levels_[0][j]);
    int32_t row = chain;
    for (size_t l = 1; l < levels_.size(); ++l) {
      row = paths.Child(row, levels_[l][j]);
    }
    // A window that was cut for lack of rows has no answer for its last
    // columns. A step needs all of them.
    if (row == Paths::kNone || verified.row_tokens[row + 1] < 0) return {};
    answers.push_back(verified.row_tokens[row + 1]);
  }
  return answers;
}

void LookaheadSource::Step(const std::vector<TokenId>& answers) {
  const size_t full = static_cast<size_t>(options_.ngram) - 1;
  if (levels_.size() < full) {
    for (std::vector<TokenId>& level : levels_) level.erase(level.begin());
    levels_.emplace_back(answers.begin() + 1, answers.end());
    return;
  }
  std::vector<TokenId> ngram(options_.ngram);
  for (size_t j = 0; j < answers.size(); ++j) {
    for (size_t l = 0; l < full; ++l) ngram[l] = levels_[l][j];
    // The window's first column begins at the last committed token itself (row
    // 0), not at a guess.
    if (j == 0) ngram[0] = last_;
    ngram[full] = answers[j];
    pool_.Insert(ngram);
  }
  levels_.erase(levels_.begin());
  levels_.push_back(answers);
}

void LookaheadSource::Ask(const DraftRound& round, absl::Span<const TokenId>) {
  const std::vector<TokenId> answers = Answers(round.verified);
  if (!answers.empty()) Step(answers);
  if (!round.committed.empty()) last_ = round.committed.back();
  max_nodes_ = round.max_nodes;
}

void LookaheadSource::AddWindow(DraftTree& window) const {
  int32_t chain = kRootParent;
  for (size_t j = 0; j < levels_[0].size(); ++j) {
    if (j > 0) chain = FindOrAdd(window, levels_[0][j], chain, 0.0f);
    int32_t row = chain;
    for (size_t l = 1; l < levels_.size(); ++l) {
      row = FindOrAdd(window, levels_[l][j], row, 0.0f);
    }
  }
}

void LookaheadSource::AddCandidates(int max_nodes, DraftTree& tree) {
  pool_.Newest(last_, options_.pool, newest_);
  for (size_t rank = 0; rank < newest_.size(); ++rank) {
    float prob = kFirstProb[std::min(rank, std::size(kFirstProb) - 1)];
    int32_t at = kRootParent;
    for (size_t i = 1; i < newest_[rank].size(); ++i) {
      const int32_t node = FindOrAdd(tree, newest_[rank][i], at, prob);
      // FindOrAdd has added one too many: take it back, its parent stays.
      if (tree.size() > max_nodes) {
        tree.tokens.pop_back();
        tree.parents.pop_back();
        tree.probs.pop_back();
        return;
      }
      at = node;
      prob = tree.probs[node] * kStepProb;
    }
  }
}

DraftOutcome LookaheadSource::Collect(absl::Time, SourceDraft& draft) {
  draft.Clear();
  if (max_nodes_ == 0) return DraftOutcome::kNotAsked;
  AddCandidates(max_nodes_, draft.tree);
  AddWindow(draft.window);
  return DraftOutcome::kAnswered;
}

}  // namespace foretoken::orchestrator
