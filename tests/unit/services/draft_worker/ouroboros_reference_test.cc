// The whole of Ouroboros against a plain reading of the paper: many rounds of
// one session with a target that often disagrees, at temperature 0 and above.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>

#include "services/draft_worker/core/ouroboros_mode.h"
#include "tests/unit/services/draft_worker/draft_fixture.h"

namespace foretoken::draft_worker {
namespace {

using ::testing::ElementsAreArray;

class ReferencePool {
 public:
  explicit ReferencePool(size_t width) : width_(width) {}

  void Insert(const Phrase& phrase) {
    std::list<Phrase>& list = lists_[phrase[0]];
    list.remove(phrase);
    list.push_front(phrase);
    if (list.size() > width_) list.pop_back();
  }
  void Replace(const Phrase& old, const Phrase& now) {
    std::list<Phrase>& list = lists_[old[0]];
    const auto at = std::find(list.begin(), list.end(), old);
    if (at == list.end() || old == now) return;
    *at = now;
    // Two equal ones: the newer, which stands first, stays.
    const auto first = std::find(list.begin(), list.end(), now);
    const auto second = std::find(std::next(first), list.end(), now);
    if (second != list.end()) list.erase(second);
  }
  std::vector<Phrase> Newest(TokenId key, size_t count) const {
    const auto found = lists_.find(key);
    if (found == lists_.end()) return {};
    std::vector<Phrase> all(found->second.begin(), found->second.end());
    if (all.size() > count) all.resize(count);
    return all;
  }

 private:
  const size_t width_;
  std::map<TokenId, std::list<Phrase>> lists_;
};

class Reference {
 public:
  Reference(const OuroborosOptions& options, Tokens prompt,
            const SamplingParams& params)
      : options_(options),
        params_(params),
        prompt_length_(static_cast<int64_t>(prompt.size())),
        text_(std::move(prompt)),
        pool_(options.window) {}

  const Tokens& text() const { return text_; }
  const Tokens& chain() const { return chain_; }
  const std::vector<Phrase>& suffixes() const { return suffixes_; }
  int64_t learnt() const { return learnt_; }

  void Draft(const Tokens& committed) {
    text_ = Joined(text_, committed);
    if (guesses_.empty()) {
      const int count = options_.window + options_.beta - 3;
      for (int j = count; j >= 1; --j) {
        guesses_.push_back(
            text_[text_.size() - 1 -
                  static_cast<size_t>(count - j) % text_.size()]);
      }
      std::reverse(guesses_.begin(), guesses_.end());
      levels_ = {guesses_};
    }
    chain_.clear();
    while (static_cast<int>(chain_.size()) < options_.gamma) {
      const Tokens context = Joined(text_, chain_);
      Tokens best;
      for (const Phrase& phrase :
           pool_.Newest(context.back(), options_.window)) {
        Tokens agreed;
        for (size_t i = 1; i < phrase.size(); ++i) {
          if (Own(Joined(context, agreed)) != phrase[i]) break;
          agreed.push_back(phrase[i]);
        }
        if (agreed.size() > best.size()) best = agreed;
      }
      chain_ = Joined(Joined(chain_, best), {Own(Joined(context, best))});
      LookAhead(context);
    }
    suffixes_ = pool_.Newest(chain_.back(), options_.suffixes);
  }

  // `target`: the target's token after any text.
  template <typename Target>
  void Learn(const Target& target) {
    const int gamma = static_cast<int>(chain_.size());
    const int beta = options_.beta;
    // 1-based, as in the paper: d[i], t[i].
    Tokens d = {-1};
    Tokens t = {-1};
    for (int i = 1; i <= gamma + 1; ++i) {
      const Tokens before(chain_.begin(), chain_.begin() + i - 1);
      t.push_back(target(Joined(text_, before)));
      if (i <= gamma) d.push_back(chain_[i - 1]);
    }
    int accepted = 0;
    while (accepted < gamma && d[accepted + 1] == t[accepted + 1]) ++accepted;
    if (options_.inspiration) {
      for (int i = accepted + 2; i <= gamma - beta + 2; ++i) {
        bool agree = true;
        for (int k = i; k <= i + beta - 2; ++k) agree &= d[k] == t[k];
        if (!agree) continue;
        pool_.Insert(Phrase(t.begin() + i, t.begin() + i + beta));
        ++learnt_;
      }
    }
    if (!options_.refinement) return;
    for (const Phrase& suffix : suffixes_) {
      Phrase refined = {suffix[0], t[gamma + 1]};
      Tokens before = chain_;
      for (int i = 1; i <= beta - 2; ++i) {
        before.push_back(suffix[i]);
        refined.push_back(target(Joined(text_, before)));
      }
      if (refined != suffix) ++learnt_;
      pool_.Replace(suffix, refined);
    }
  }

 private:
  TokenId Own(const Tokens& text) const {
    return NextToken(text, prompt_length_, params_);
  }

  // levels_[l] starts at column 1 for level 0 and at column 0 below: cell (l,
  // j) hangs on the j guesses of level 0 and on the cells above it.
  void LookAhead(const Tokens& context) {
    const size_t columns = levels_[0].size() + 1;
    std::vector<Phrase> stacks;
    Tokens answers;
    for (size_t j = 0; j < columns; ++j) {
      Tokens path = context;
      for (size_t k = 0; k < j; ++k) path.push_back(levels_[0][k]);
      Phrase stack = {path.back()};
      for (size_t l = 1; l < levels_.size(); ++l) {
        stack.push_back(levels_[l][j]);
        path.push_back(levels_[l][j]);
      }
      answers.push_back(Own(path));
      stack.push_back(answers.back());
      stacks.push_back(stack);
    }
    if (static_cast<int>(levels_.size()) == options_.beta - 1) {
      for (const Phrase& phrase : stacks) pool_.Insert(phrase);
      // One Jacobi step; the guess in the last token's place is dropped.
      levels_.push_back(answers);
      levels_.erase(levels_.begin());
      levels_[0].erase(levels_[0].begin());
    } else {
      levels_[0].erase(levels_[0].begin());
      for (size_t l = 1; l < levels_.size(); ++l) {
        levels_[l].erase(levels_[l].begin());
      }
      levels_.push_back(Tokens(answers.begin() + 1, answers.end()));
    }
  }

  const OuroborosOptions options_;
  const SamplingParams params_;
  const int64_t prompt_length_;
  Tokens text_;
  Tokens chain_;
  std::vector<Phrase> suffixes_;
  ReferencePool pool_;
  Tokens guesses_;
  std::vector<Tokens> levels_;
  int64_t learnt_ = 0;
};

// Chain, then every suffix, equal beginnings in one node.
void ExpectIsDraft(const DraftTree& tree, const Tokens& chain,
                   const std::vector<Phrase>& suffixes) {
  std::vector<Tokens> paths;
  for (int node = 0; node < tree.size(); ++node) {
    Tokens path;
    for (int32_t at = node; at >= 0; at = tree.parents[at]) {
      path.push_back(tree.tokens[at]);
    }
    std::reverse(path.begin(), path.end());
    paths.push_back(path);
  }
  std::vector<Tokens> want;
  Tokens path;
  for (const TokenId token : chain) {
    path.push_back(token);
    want.push_back(path);
  }
  for (const Phrase& suffix : suffixes) {
    path = chain;
    for (size_t i = 1; i < suffix.size(); ++i) {
      path.push_back(suffix[i]);
      if (std::find(want.begin(), want.end(), path) == want.end()) {
        want.push_back(path);
      }
    }
  }
  EXPECT_THAT(paths, ElementsAreArray(want));
}

struct Case {
  const char* mode;
  OuroborosOptions options;
  float temperature;
};

class OuroborosReferenceTest : public ::testing::TestWithParam<Case> {};

TEST_P(OuroborosReferenceTest, DraftsAsThePaperSays) {
  const Case& test = GetParam();
  const SamplingParams params =
      test.temperature > 0 ? Seeded(21, test.temperature) : SamplingParams();
  const Tokens prompt = {3, 9, 4, 3, 9, 8, 1};
  // The target is the draft model that changes its mind now and then.
  const auto target = [&](const Tokens& text) {
    const TokenId own = NextToken(text, 7, params);
    return (text.size() * 7 + own) % 5 == 0 ? (own + 1) % 50 : own;
  };
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen(test.mode, prompt, params));
  Reference reference(test.options, prompt, params);
  Tokens committed = {17};
  DraftRound round = MakeRound(8, committed, 256);
  int suffix_nodes = 0;
  for (int i = 0; i < 25; ++i) {
    reference.Draft(committed);
    const DraftTree tree = f.Ask(key, round).tree;
    ExpectIsDraft(tree, reference.chain(), reference.suffixes());
    if (HasFailure()) return;
    suffix_nodes += tree.size() - static_cast<int>(reference.chain().size());

    round.verified.tree = *TokenTree::Create(tree.tokens, tree.parents);
    round.verified.row_tokens.clear();
    for (int node = -1; node < tree.size(); ++node) {
      Tokens path;
      for (int32_t at = node; at >= 0; at = tree.parents[at]) {
        path.push_back(tree.tokens[at]);
      }
      std::reverse(path.begin(), path.end());
      round.verified.row_tokens.push_back(
          target(Joined(reference.text(), path)));
    }
    reference.Learn(target);
    round.verified.path.clear();
    committed.clear();
    for (int32_t node = -1;;) {
      const TokenId next = round.verified.row_tokens[node + 1];
      committed.push_back(next);
      int32_t child = node + 1;
      while (child < tree.size() &&
             (tree.parents[child] != node || tree.tokens[child] != next)) {
        ++child;
      }
      if (child == tree.size()) break;
      round.verified.path.push_back(node = child);
    }
    round.committed = committed;
    round.length += static_cast<int64_t>(committed.size());
  }
  // It was a test of something.
  EXPECT_GT(suffix_nodes, 0);
  EXPECT_EQ(reference.learnt() > 0,
            test.options.inspiration || test.options.refinement);
  EXPECT_GT(f.engine.snapshot().totals.modes.phrase_tokens, 0);
}

OuroborosOptions Options(int gamma, int window, int beta, int suffixes,
                         bool inspiration = true, bool refinement = true) {
  OuroborosOptions options;
  options.gamma = gamma;
  options.window = window;
  options.beta = beta;
  options.suffixes = suffixes;
  options.inspiration = inspiration;
  options.refinement = refinement;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, OuroborosReferenceTest,
    ::testing::Values(
        Case{"ouroboros:preset=paper", OuroborosOptions(), 0.0f},
        Case{"ouroboros:preset=paper", OuroborosOptions(), 0.8f},
        Case{"ouroboros:gamma=8,window=6,beta=3,suffixes=4",
             Options(8, 6, 3, 4), 0.0f},
        Case{"ouroboros:gamma=8,window=6,beta=3,suffixes=4",
             Options(8, 6, 3, 4), 0.3f},
        Case{"ouroboros:gamma=3,window=5,beta=2,suffixes=2",
             Options(3, 5, 2, 2), 0.8f},
        Case{"ouroboros:gamma=6,window=4,beta=4,inspiration=0",
             Options(6, 4, 4, 3, false, true), 0.0f},
        Case{"ouroboros:gamma=9,window=4,beta=4,refinement=0",
             Options(9, 4, 4, 3, true, false), 0.0f},
        Case{"ouroboros:gamma=6,window=4,beta=4,inspiration=0,refinement=0",
             Options(6, 4, 4, 3, false, false), 0.8f}));

}  // namespace
}  // namespace foretoken::draft_worker
