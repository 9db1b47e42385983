// What CREST's look-up and counting cost.
//
//   bench_crest --benchmark_filter=Lookup
//
// Percentiles of single look-ups are printed as counters (nanoseconds); the
// clock's own cost is taken off.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/base/progress_bar.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest_build/ngram_runs.h"
#include "common/drafting/crest_build/ngram_select.h"
#include "common/drafting/crest_build/token_file.h"
#include "tests/support/crest_samples.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using Clock = std::chrono::steady_clock;

double Nanos(Clock::duration duration) {
  return std::chrono::duration<double, std::nano>(duration).count();
}

double Percentile(std::vector<double>& samples, double share) {
  const auto at =
      samples.begin() + static_cast<int64_t>(share * (samples.size() - 1));
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

// A million n-grams of 1..3 tokens with trees of up to 64 nodes.
const testing::CrestSample& MillionNgrams() {
  static const testing::CrestSample sample =
      testing::MakeCrestSample(1, 1'000'000, 32'000);
  return sample;
}

// Contexts that end in a stored n-gram, in random order, so that most look-ups
// miss every cache. `hit`: else contexts that are nowhere stored.
void BM_Lookup(benchmark::State& state) {
  const bool hit = state.range(0) == 1;
  const testing::CrestSample& sample = MillionNgrams();
  const auto index =
      CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined());
  FORETOKEN_CHECK(index.ok());
  std::mt19937 random(2);
  std::vector<std::vector<TokenId>> contexts(200'000);
  for (auto& context : contexts) {
    context.resize(4);
    for (TokenId& token : context) {
      token = static_cast<TokenId>(random() % 32'000) + (hit ? 0 : 32'000);
    }
    if (!hit) continue;
    const auto& ngram = sample.ngrams[random() % sample.ngrams.size()];
    context.insert(context.end(), ngram.begin(), ngram.end());
  }
  double clock = 1e9;
  for (int i = 0; i < 1000; ++i) {
    const auto start = Clock::now();
    clock = std::min(clock, Nanos(Clock::now() - start));
  }
  std::vector<double> samples;
  CrestTree tree;
  size_t next = 0;
  int64_t found = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    found += index->Lookup(contexts[next], tree) > 0;
    samples.push_back(Nanos(Clock::now() - start) - clock);
    next = next + 1 == contexts.size() ? 0 : next + 1;
  }
  state.counters["p50_ns"] = Percentile(samples, 0.5);
  state.counters["p99_ns"] = Percentile(samples, 0.99);
  state.counters["hit_share"] =
      static_cast<double>(found) / static_cast<double>(samples.size());
  state.counters["index_MB"] = static_cast<double>(index->bytes()) / 1e6;
}
BENCHMARK(BM_Lookup)->Arg(1)->Arg(0)->Iterations(400'000);

// Tokens as Zipf draws them, rank^-1 over the vocabulary, pairs correlated: a
// token is followed by one of its own few favourites half of the time.
void WriteZipfTokens(uint64_t tokens, int vocabulary, TokenFileWriter& writer) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  const double scale = std::log(static_cast<double>(vocabulary));
  const auto draw = [&] {
    return static_cast<TokenId>(std::exp(uniform(random) * scale)) - 1;
  };
  std::vector<TokenId> document;
  for (uint64_t i = 0; i < tokens; ++i) {
    const TokenId last = document.empty() ? 0 : document.back();
    document.push_back(
        uniform(random) < 0.5
            ? static_cast<TokenId>((last * 7919u + draw() % 8) % vocabulary)
            : draw());
    if (document.size() == 1000 || i + 1 == tokens) {
      FORETOKEN_CHECK(writer.AddDocument(document).ok());
      document.clear();
    }
  }
  FORETOKEN_CHECK(writer.Finish().ok());
}

// Counting n-grams 1..4 and keeping the top 64k of each, from pre-tokenised
// text on disk, one thread: runs, merge and selection.
void BM_Count(benchmark::State& state) {
  const uint64_t tokens = static_cast<uint64_t>(state.range(0));
  constexpr int kVocabulary = 32'000;
  testing::TempDir dir;
  const auto file = *SpillFile::Create(dir.File("tokens"));
  TokenFileWriter writer(*file, kVocabulary);
  WriteZipfTokens(tokens, kVocabulary, writer);
  const KeyLayout layout{TokenBytesFor(kVocabulary), 4};
  const TokenFile token_file(*file, layout.token_bytes);
  ThreadPool pool(1);
  for (auto _ : state) {
    const auto runs_file = *SpillFile::Create(dir.File("runs"));
    const auto merged = *SpillFile::Create(dir.File("merged"));
    const auto candidates = *SpillFile::Create(dir.File("candidates"));
    const auto selected = *SpillFile::Create(dir.File("selected"));
    Progress progress("bench", 0, "tokens", false);
    StageOptions options;
    options.layout = layout;
    options.top = 65'536;
    options.memory_bytes = uint64_t{512} << 20;
    auto runs = WriteNgramRuns(token_file, options, pool, *runs_file, progress);
    FORETOKEN_CHECK(runs.ok());
    const auto selection =
        SelectNgrams(*runs_file, *std::move(runs), writer.unigrams(), options,
                     pool, *merged, *candidates, *selected, progress);
    FORETOKEN_CHECK(selection.ok());
    state.counters["distinct_4grams"] =
        static_cast<double>(selection->levels[3].distinct);
  }
  state.SetItemsProcessed(static_cast<int64_t>(tokens) * state.iterations());
}
BENCHMARK(BM_Count)
    ->Arg(20'000'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime();

}  // namespace
}  // namespace foretoken

BENCHMARK_MAIN();
