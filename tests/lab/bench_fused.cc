// Fused drafting: one draft by budget and sources, one committed token, and the
// look-ups underneath, on synthetic text with the skew and the repeats of
// language. What counts is foretoken replay on recorded text; these show which
// part a change moved.
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/drafting/fused_drafter.h"
#include "common/drafting/ngram_counts.h"
#include "common/drafting/prior_builder.h"
#include "common/drafting/static_prior.h"
#include "common/drafting/verified_tree.h"
#include "common/drafting/window_trie.h"

namespace foretoken {
namespace {

constexpr int32_t kVocab = 32000;

// Zipf-like tokens; half of the time a run of an earlier place goes on.
std::vector<TokenId> Text(uint32_t seed, size_t length) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::vector<TokenId> text;
  size_t copy = 0;
  while (text.size() < length) {
    if (copy != 0 && random() % 8 != 0) {
      text.push_back(text[copy++]);
      continue;
    }
    copy = text.size() > 100 && random() % 2 == 0 ? random() % text.size() : 0;
    text.push_back(
        static_cast<TokenId>(static_cast<double>(kVocab - 1) *
                             (1.0 - std::pow(uniform(random), 0.15))));
  }
  return text;
}

std::shared_ptr<const StaticPrior> Prior() {
  static const std::shared_ptr<const StaticPrior> prior = [] {
    PriorBuildOptions options;
    options.vocab_size = kVocab;
    options.max_bytes = 4'000'000;
    const auto bytes = BuildPrior(Text(1, 1'000'000), options);
    const auto opened = StaticPrior::FromBytes(
        {reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()},
        "bench", Sha256Digest{});
    return *opened;
  }();
  return prior;
}

std::unique_ptr<Drafter> MakeDrafter(bool history, bool prior) {
  FusedOptions options;
  options.use_history = history;
  if (prior) options.prior = Prior();
  auto drafter = MakeFusedDrafter(options);
  if (history) drafter->AddHistory(Text(2, 100'000));
  return drafter;
}

// Eight candidates for every row of a tree, each half as likely as the one
// before; those of text of the same skew.
VerifiedTree Verified(const DraftTree& tree, std::mt19937& random,
                      absl::Span<const TokenId> text) {
  VerifiedTree verified;
  verified.tree = *TokenTree::Create(tree.tokens, tree.parents);
  if (tree.size() > 0) verified.path = {0};
  verified.candidates.width = 8;
  for (int i = 0; i < 8 * (tree.size() + 1); ++i) {
    verified.candidates.tokens.push_back(text[random() % text.size()]);
    verified.candidates.costs.push_back(static_cast<uint8_t>(i % 8 * 11));
  }
  return verified;
}

// Arguments: budget, history, prior, candidates of verified rows.
void BM_FusedDraft(benchmark::State& state) {
  const auto drafter = MakeDrafter(state.range(1) != 0, state.range(2) != 0);
  const std::vector<TokenId> text = Text(3, 4096);
  std::mt19937 random(6);
  drafter->StartRequest({text.data(), 512});
  DraftTree tree;
  size_t at = 512;
  for (auto _ : state) {
    state.PauseTiming();
    drafter->Commit({text.data() + at, 2});
    if (state.range(3) != 0) drafter->Observe(Verified(tree, random, text));
    at = at + 4 < text.size() ? at + 2 : 512;
    state.ResumeTiming();
    drafter->Draft(static_cast<int>(state.range(0)), tree);
    benchmark::DoNotOptimize(tree.tokens.data());
  }
}
BENCHMARK(BM_FusedDraft)
    ->Args({8, 1, 1, 0})
    ->Args({64, 0, 0, 0})
    ->Args({64, 1, 0, 0})
    ->Args({64, 0, 1, 0})
    ->Args({64, 1, 1, 0})
    ->Args({64, 0, 0, 1})
    ->Args({64, 0, 1, 1})
    ->Args({64, 1, 1, 1})
    ->Iterations(1500);

void BM_FusedCommit(benchmark::State& state) {
  const auto drafter = MakeDrafter(true, true);
  const std::vector<TokenId> text = Text(3, 4096);
  for (auto _ : state) {
    drafter->StartRequest({text.data(), 64});
    drafter->Commit(text);
  }
  state.SetItemsProcessed(state.iterations() *
                          static_cast<int64_t>(text.size()));
}
BENCHMARK(BM_FusedCommit);

void BM_WindowTrieAppend(benchmark::State& state) {
  const std::vector<TokenId> text = Text(4, 100'000);
  WindowTrie trie(static_cast<size_t>(state.range(0)));
  size_t at = 0;
  for (auto _ : state) {
    trie.Append(text[at]);
    at = at + 1 < text.size() ? at + 1 : 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_WindowTrieAppend)->Arg(4096)->Arg(1 << 18);

void BM_PriorLookUp(benchmark::State& state) {
  const auto prior = Prior();
  const std::vector<TokenId> text = Text(5, 4096);
  size_t at = 0;
  for (auto _ : state) {
    const StaticPrior::List list = prior->AfterToken(text[at]);
    benchmark::DoNotOptimize(list.size == 0 ? -1
                                            : prior->Find(list, text[at + 1]));
    at = at + 2 < text.size() ? at + 1 : 0;
  }
}
BENCHMARK(BM_PriorLookUp);

}  // namespace
}  // namespace foretoken
