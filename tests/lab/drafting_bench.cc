// Draft, insert and look-up of the drafters without a model, and the merging of
// their trees. Time per iteration is one call unless items are counted; run
// with
//   bench_drafting --benchmark_filter=NgramTrie
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/drafting/ngram_trie.h"
#include "common/drafting/phrase_pool.h"
#include "common/drafting/phrase_pool_drafter.h"
#include "common/drafting/prompt_lookup.h"
#include "common/speculation/tree_builder.h"

namespace foretoken {
namespace {

constexpr int64_t kShort = 512;   // a chat request
constexpr int64_t kLong = 32768;  // a long document

// Text with the two traits that these structures live on: token frequencies
// that fall as 1 / rank over a vocabulary of 32,000, and stretches copied from
// earlier (about two tokens in five).
std::vector<TokenId> MakeText(int64_t size, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::vector<TokenId> text;
  while (text.size() < static_cast<size_t>(size)) {
    if (text.size() > 64 && random() % 18 == 0) {
      const size_t from = random() % (text.size() - 16);
      for (size_t i = 0; i < 12; ++i) text.push_back(text[from + i]);
    } else {
      // Inverse of the distribution function of 1 / rank.
      text.push_back(static_cast<TokenId>(std::pow(32000.0, uniform(random))) -
                     1);
    }
  }
  text.resize(size);
  return text;
}

void BM_PromptLookupInsert(benchmark::State& state) {
  const std::vector<TokenId> text = MakeText(state.range(0));
  PromptLookupDrafter drafter({});
  for (auto _ : state) drafter.StartRequest(text);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_PromptLookupInsert)->Arg(kShort)->Arg(kLong);

void BM_PromptLookupDraft(benchmark::State& state) {
  PromptLookupDrafter drafter({});
  drafter.StartRequest(MakeText(state.range(0)));
  DraftTree tree;
  for (auto _ : state) {
    drafter.Draft(64, tree);
    benchmark::DoNotOptimize(tree.tokens.data());
  }
}
BENCHMARK(BM_PromptLookupDraft)->Arg(kShort)->Arg(kLong);

void BM_NgramTrieInsert(benchmark::State& state) {
  const std::vector<TokenId> text = MakeText(state.range(0));
  NgramTrie trie(13, 1 << 17);
  for (auto _ : state) {
    trie.Clear(state.range(0));
    for (const TokenId token : text) trie.Insert(token);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_NgramTrieInsert)->Arg(kShort)->Arg(kLong);

// Every token that enters evicts the oldest.
void BM_NgramTrieInsertIntoFullWindow(benchmark::State& state) {
  const std::vector<TokenId> text = MakeText(1 << 17);
  NgramTrie trie(13, state.range(0));
  for (const TokenId token : text) trie.Insert(token);
  size_t at = 0;
  for (auto _ : state) {
    trie.Insert(text[at]);
    at = (at + 1) % text.size();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_NgramTrieInsertIntoFullWindow)->Arg(1024)->Arg(kLong);

// From a different place of the text each time.
void BM_NgramTrieDraft(benchmark::State& state) {
  const std::vector<TokenId> text = MakeText(state.range(0));
  NgramTrie trie(13, 1 << 17);
  for (const TokenId token : text) trie.Insert(token);
  DraftTree tree;
  size_t end = 3;
  for (auto _ : state) {
    tree.Clear();
    trie.Draft(absl::MakeSpan(text).first(end), 3,
               static_cast<int>(state.range(1)), tree);
    benchmark::DoNotOptimize(tree.tokens.data());
    end = end + 7 < text.size() ? end + 7 : 3;
  }
}
BENCHMARK(BM_NgramTrieDraft)->ArgsProduct({{kShort, kLong}, {8, 32, 64, 256}});

void BM_NgramTrieLookUp(benchmark::State& state) {
  const std::vector<TokenId> text = MakeText(state.range(0));
  NgramTrie trie(13, 1 << 17);
  for (const TokenId token : text) trie.Insert(token);
  size_t at = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(trie.Count(absl::MakeSpan(text).subspan(at, 3)));
    at = at + 10 < text.size() ? at + 7 : 0;
  }
}
BENCHMARK(BM_NgramTrieLookUp)->Arg(kShort)->Arg(kLong);

void BM_PhrasePoolInsert(benchmark::State& state) {
  const std::vector<TokenId> text = MakeText(state.range(0));
  PhrasePool pool({});
  for (auto _ : state) pool.InsertWindows(text);
  state.SetItemsProcessed(state.iterations() * (state.range(0) - 7));
}
BENCHMARK(BM_PhrasePoolInsert)->Arg(kShort)->Arg(kLong);

void BM_PhrasePoolLookUp(benchmark::State& state) {
  const std::vector<TokenId> text = MakeText(state.range(0));
  PhrasePool pool({});
  pool.InsertWindows(text);
  std::vector<absl::Span<const TokenId>> phrases;
  size_t at = 0;
  for (auto _ : state) {
    pool.Newest(text[at], 3, phrases);
    benchmark::DoNotOptimize(phrases.data());
    at = (at + 1) % text.size();
  }
}
BENCHMARK(BM_PhrasePoolLookUp)->Arg(kShort)->Arg(kLong);

void BM_PhrasePoolRefine(benchmark::State& state) {
  PhrasePool pool({});
  for (TokenId second = 0; second < 20; ++second) {
    pool.Insert({1, second, 3, 4, 5, 6, 7, 8});
  }
  // The oldest of a full key, there and back.
  std::vector<TokenId> phrase = {1, 0, 3, 4, 5, 6, 7, 8};
  std::vector<TokenId> refined = {1, 0, 9, 9, 9, 9, 9, 9};
  for (auto _ : state) {
    pool.Refine(phrase, refined);
    std::swap(phrase, refined);
  }
}
BENCHMARK(BM_PhrasePoolRefine);

void BM_PhrasePoolWarmStart(benchmark::State& state) {
  PhrasePool pool({});
  pool.InsertWindows(MakeText(state.range(0)));
  const std::vector<TokenId> snapshot = pool.Snapshot();
  for (auto _ : state) {
    PhrasePool fresh({});
    benchmark::DoNotOptimize(fresh.MergeOlder(snapshot).ok());
  }
  state.SetItemsProcessed(state.iterations() * pool.size());
}
BENCHMARK(BM_PhrasePoolWarmStart)->Arg(kShort)->Arg(kLong);

void BM_PhrasePoolDraft(benchmark::State& state) {
  PhrasePoolDrafter drafter({});
  drafter.StartRequest(MakeText(state.range(0)));
  DraftTree tree;
  for (auto _ : state) {
    drafter.Draft(64, tree);
    benchmark::DoNotOptimize(tree.tokens.data());
  }
}
BENCHMARK(BM_PhrasePoolDraft)->Arg(kShort)->Arg(kLong);

DraftTree RandomTree(int size, uint32_t seed) {
  std::mt19937 random(seed);
  DraftTree tree;
  for (int i = 0; i < size; ++i) {
    const int32_t parent = static_cast<int32_t>(random() % (i + 1)) - 1;
    const float above = parent < 0 ? 1.0f : tree.probs[parent];
    tree.Add(static_cast<TokenId>(random() % 4), parent,
             above * static_cast<float>(random() % 100) / 100);
  }
  return tree;
}

void BM_TreeBuilderMergeAndPrune(benchmark::State& state) {
  std::vector<DraftTree> trees;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    trees.push_back(RandomTree(64, seed));
  }
  TreeBuilder builder;
  for (auto _ : state) {
    builder.Clear();
    for (size_t i = 0; i < trees.size(); ++i) {
      builder.Add(static_cast<int>(i), trees[i], trees[i].probs);
    }
    benchmark::DoNotOptimize(builder.Build(64, 320).draft_nodes());
  }
}
BENCHMARK(BM_TreeBuilderMergeAndPrune);

}  // namespace
}  // namespace foretoken
