#include "common/drafting/ngram_trie.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

void InsertAll(NgramTrie& trie, const Tokens& tokens) {
  for (const TokenId token : tokens) trie.Insert(token);
}

// Counts of all substrings of up to n tokens of `text`.
std::map<Tokens, int64_t> CountAll(const Tokens& text, int n) {
  std::map<Tokens, int64_t> counts;
  for (size_t start = 0; start < text.size(); ++start) {
    Tokens ngram;
    for (size_t at = start; at < text.size() && ngram.size() < size_t(n);
         ++at) {
      ngram.push_back(text[at]);
      ++counts[ngram];
    }
  }
  return counts;
}

// (count, depth) of the draft's nodes, as the definition gives them: the order
// among equal pairs is free.
std::vector<std::pair<int64_t, int>> ExpectedDraft(
    const std::map<Tokens, int64_t>& counts, const Tokens& context,
    int longest_match, int max_nodes) {
  std::vector<std::pair<int64_t, int>> nodes;
  for (int length = std::min<int>(longest_match, context.size()); length >= 1;
       --length) {
    const Tokens match(context.end() - length, context.end());
    for (auto it = counts.lower_bound(match); it != counts.end(); ++it) {
      const Tokens& ngram = it->first;
      if (ngram.size() < match.size() ||
          !std::equal(match.begin(), match.end(), ngram.begin())) {
        break;
      }
      const int depth = static_cast<int>(ngram.size()) - length;
      if (depth > 0) nodes.emplace_back(it->second, -depth);
    }
    if (!nodes.empty()) break;
  }
  std::sort(nodes.rbegin(), nodes.rend());
  if (nodes.size() > size_t(max_nodes)) nodes.resize(max_nodes);
  return nodes;
}

std::vector<std::pair<int64_t, int>> ActualDraft(NgramTrie& trie,
                                                 const Tokens& context,
                                                 int longest_match,
                                                 int max_nodes) {
  DraftTree tree;
  const int length = trie.Draft(context, longest_match, max_nodes, tree);
  std::vector<std::pair<int64_t, int>> nodes;
  std::vector<Tokens> paths;
  for (int node = 0; node < tree.size(); ++node) {
    const int32_t parent = tree.parents[node];
    Tokens path = parent < 0 ? Tokens(context.end() - length, context.end())
                             : paths[parent];
    path.push_back(tree.tokens[node]);
    nodes.emplace_back(trie.Count(path), length - int(path.size()));
    EXPECT_GT(tree.probs[node], 0.0f);
    EXPECT_LE(tree.probs[node], parent < 0 ? 1.0f : tree.probs[parent] + 1e-6f);
    paths.push_back(std::move(path));
  }
  std::sort(paths.begin(), paths.end());
  EXPECT_EQ(std::unique(paths.begin(), paths.end()), paths.end())
      << "equal siblings";
  return nodes;
}

TEST(NgramTrieTest, CountsEverySubstring) {
  NgramTrie trie(4, 1024);
  InsertAll(trie, {1, 2, 3, 1, 2, 4, 1, 2, 3, 1});
  EXPECT_EQ(trie.Count({1}), 4);
  EXPECT_EQ(trie.Count({1, 2}), 3);
  EXPECT_EQ(trie.Count({1, 2, 3}), 2);
  EXPECT_EQ(trie.Count({1, 2, 3, 1}), 2);
  EXPECT_EQ(trie.Count({1, 2, 4, 1}), 1);
  EXPECT_EQ(trie.Count({2, 4, 1, 2}), 1);
  EXPECT_EQ(trie.Count({4, 4}), 0);
  EXPECT_EQ(trie.Count({9}), 0);
}

TEST(NgramTrieTest, DraftsTheMostFrequentContinuationsBestFirst) {
  NgramTrie trie(4, 1024);
  InsertAll(trie, {1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2});
  DraftTree tree;
  EXPECT_EQ(trie.Draft({1, 2}, 2, 3, tree), 2);
  // After "1 2": 3 twice, 4 once; both nodes below 3 are seen once.
  EXPECT_EQ(tree.tokens[0], 3);
  EXPECT_EQ(tree.tokens[1], 4);  // the shallower of those seen once
  EXPECT_THAT(tree.parents, ElementsAre(-1, -1, 0));
  EXPECT_FLOAT_EQ(tree.probs[0], 2.0f / 3);
  EXPECT_FLOAT_EQ(tree.probs[1], 1.0f / 3);
}

TEST(NgramTrieTest, BacksOffToTheLongestSuffixWithAContinuation) {
  NgramTrie trie(4, 1024);
  InsertAll(trie, {1, 2, 3, 5, 2, 6, 7, 3});
  DraftTree tree;
  EXPECT_EQ(trie.Draft({9, 2, 3}, 3, 8, tree), 2);
  EXPECT_EQ(tree.tokens[0], 5);
  tree.Clear();
  EXPECT_EQ(trie.Draft({9, 9, 6}, 3, 8, tree), 1);
  EXPECT_THAT(tree.tokens, ElementsAre(7, 3));
  tree.Clear();
  EXPECT_EQ(trie.Draft({9, 9, 9}, 3, 8, tree), 0);
  EXPECT_THAT(tree.tokens, IsEmpty());
  // The text's own end has no continuation: "7 3" does not help, "3" does.
  EXPECT_EQ(trie.Draft({7, 3}, 3, 8, tree), 1);
  EXPECT_EQ(tree.tokens[0], 5);
}

TEST(NgramTrieTest, ADraftIsNoDeeperThanNAllows) {
  NgramTrie trie(5, 1024);
  InsertAll(trie, {1, 2, 3, 4, 5, 6, 7, 8});
  DraftTree tree;
  trie.Draft({1, 2}, 2, 64, tree);
  EXPECT_THAT(tree.tokens, ElementsAre(3, 4, 5));
}

TEST(NgramTrieTest, ClearForgets) {
  NgramTrie trie(4, 1024);
  InsertAll(trie, {1, 2, 3});
  trie.Clear();
  EXPECT_EQ(trie.tokens(), 0);
  EXPECT_EQ(trie.nodes(), 0);
  EXPECT_EQ(trie.Count({1}), 0);
  InsertAll(trie, {1, 1});
  EXPECT_EQ(trie.Count({1}), 2);
}

struct TextCase {
  std::string name;
  int n;
  int alphabet;
  int length;  // above 1024 the window slides
};

class NgramTrieTextTest : public ::testing::TestWithParam<TextCase> {
 protected:
  // Random text with copied stretches, so that deep n-grams repeat.
  Tokens MakeText() const {
    const TextCase& text_case = GetParam();
    std::mt19937 random(17);
    Tokens text;
    while (text.size() < size_t(text_case.length)) {
      const size_t copy = random() % 40;
      if (text.size() > 100 && copy > 20) {
        const size_t from = text.size() - 1 - random() % 100;
        for (size_t i = 0; i < copy; ++i) text.push_back(text[from + i]);
      } else {
        text.push_back(static_cast<TokenId>(random() % text_case.alphabet));
      }
    }
    text.resize(text_case.length);
    return text;
  }
};

TEST_P(NgramTrieTextTest, CountsAndDraftsEqualTheDefinition) {
  const TextCase& text_case = GetParam();
  const Tokens text = MakeText();
  NgramTrie trie(text_case.n, 1024);
  for (size_t size = 1; size <= text.size(); ++size) {
    trie.Insert(text[size - 1]);
    // Every few steps, at a stride that meets all phases of the window.
    if (size % 151 != 0 && size != text.size()) continue;
    ASSERT_LE(trie.tokens(), 1024);
    ASSERT_GE(trie.tokens(), std::min<int64_t>(size, 4 * text_case.n));
    const Tokens window(text.begin() + size - trie.tokens(),
                        text.begin() + size);
    const std::map<Tokens, int64_t> counts = CountAll(window, text_case.n);
    for (const auto& [ngram, count] : counts) {
      ASSERT_EQ(trie.Count(ngram), count) << "after " << size << " tokens";
    }
    for (size_t end = window.size(); end > window.size() - 30 && end >= 3;
         --end) {
      const Tokens context(window.begin(), window.begin() + end);
      for (const int budget : {1, 5, 32, 64}) {
        ASSERT_THAT(ActualDraft(trie, context, 3, budget),
                    ElementsAreArray(ExpectedDraft(counts, context, 3, budget)))
            << "after " << size << " tokens, context ends at " << end;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Texts, NgramTrieTextTest,
    ::testing::Values(TextCase{"Binary", 5, 2, 900},
                      TextCase{"Constant", 13, 1, 300},
                      TextCase{"Published", 13, 30, 1000},
                      TextCase{"SlidingBinary", 4, 2, 3000},
                      TextCase{"SlidingConstant", 13, 1, 2500},
                      TextCase{"SlidingPublished", 13, 20, 3000},
                      TextCase{"SlidingRich", 6, 200, 3000}),
    [](const auto& test) { return test.param.name; });

// The bound holds for text that fills the trie with nodes as well as for text
// that does not.
TEST(NgramTrieTest, MemoryIsBoundedForEveryKindOfText) {
  for (const int n : {13, 32}) {
    for (const int period : {1, 7, 500, 600, 1 << 30}) {
      NgramTrie trie(n, 1024);
      EXPECT_LT(trie.MaxBytes(), size_t{300} * 1024);
      std::mt19937 random(3);
      Tokens text;
      for (int i = 0; i < 20000; ++i) {
        text.push_back(i >= period && random() % 1000 != 0
                           ? text[i - period]
                           : static_cast<TokenId>(random() % 50000));
        trie.Insert(text.back());
        ASSERT_LE(trie.MemoryBytes(), trie.MaxBytes());
      }
      EXPECT_LE(trie.tokens(), 1024);
      EXPECT_GE(trie.tokens(), 4 * n);
    }
  }
}

TEST(NgramTrieTest, OfVeryManyChildrenTheLatestAreDrafted) {
  NgramTrie trie(3, 1 << 14);
  Tokens text;
  for (TokenId next = 100; next < 4100; ++next) {
    text.push_back(1);
    text.push_back(next);
  }
  InsertAll(trie, text);
  DraftTree tree;
  EXPECT_EQ(trie.Draft({1}, 1, 3, tree), 1);
  EXPECT_THAT(tree.tokens, ElementsAre(4099, 4098, 4097));
}

}  // namespace
}  // namespace foretoken
