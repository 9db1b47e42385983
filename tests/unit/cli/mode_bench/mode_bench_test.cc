#include "common/base/json.h"
#include "tools/cli/mode_bench/mode_bench.h"

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_generator.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/cli/mode_bench/fake_time.h"
#include "tools/cli/mode_bench/mode_bench_report.h"
#include "tools/cli/mode_bench/ratio_plot.h"

namespace foretoken::mode_bench {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using ::foretoken::testing::FakeGenerator;
using OnDelta = FakeGenerator::Take;

// Answers with the prompt's id and the numbers that follow it, as many as the
// request allows, at a fixed time per round: one token of `off`, two of any
// other mode.
class ModeBenchTest : public ::testing::Test {
 protected:
  ModeBenchTest()
      : generator_([this](const GenerationRequest& request, OnDelta on_delta) {
          return Answer(request, on_delta);
        }) {
    options_.modes = {"off", "auto"};
    options_.max_tokens = 5;
    options_.pairs.pairs = 2;
    options_.scope = "test";
    load_.clock = time_.clock();
    load_.pause = [this](absl::Duration by) { time_.Advance(by); };
    load_.on_done = [this] { ++done_; };
    for (TokenId id = 10; id < 15; ++id) {
      prompts_.push_back({std::nullopt, {id}});
    }
  }

  absl::StatusOr<GenerationSummary> Answer(const GenerationRequest& request,
                                           OnDelta on_delta) {
    const std::string mode = request.mode->ToString();
    const int64_t step = mode == "off" ? 1 : 2;
    GenerationSummary summary;
    TokenId token = request.prompt[0];
    for (int64_t given = 0; given < request.max_tokens;) {
      time_.Advance(absl::Milliseconds(10));
      std::vector<TokenId> ids;
      while (static_cast<int64_t>(ids.size()) < (given == 0 ? 1 : step) &&
             given + static_cast<int64_t>(ids.size()) < request.max_tokens) {
        ids.push_back(++token);
      }
      if (mode == wrong_mode_ && given > 0) ids.front() = 0;
      given += static_cast<int64_t>(ids.size());
      if (given > 1) {
        ++summary.rounds;
        summary.accepted += static_cast<int64_t>(ids.size()) - 1;
      }
      FORETOKEN_RETURN_IF_ERROR(on_delta(Tokens(std::move(ids))));
    }
    summary.draft_time = absl::Milliseconds(2) * summary.rounds;
    summary.verify_time = absl::Milliseconds(5) * summary.rounds;
    if (mode != "off") {
      summary.by_drafter.push_back({DrafterId::kFused, 8, summary.accepted,
                                    summary.rounds, 0,
                                    shortened_modes_.count(mode) > 0});
    }
    return summary;
  }

  absl::StatusOr<ModeBenchResult> Run() {
    FORETOKEN_RETURN_IF_ERROR(ModeBench::Check(options_));
    ModeBench bench(options_, prompts_, generator_, load_);
    most_requests_ = bench.MostRequests();
    return bench.Run();
  }

  FakeTime time_;
  std::atomic<int> done_{0};
  int64_t most_requests_ = 0;
  std::string wrong_mode_;
  std::set<std::string> shortened_modes_;
  ModeBenchOptions options_;
  std::vector<cli::FilePrompt> prompts_;
  LoadOptions load_;
  FakeGenerator generator_;
};

TEST_F(ModeBenchTest, ModesAreSplitAtCommasBetweenThem) {
  EXPECT_THAT(
      SplitModes("off,prompt_lookup:max_n=3,match=latest,auto,off"),
      ElementsAre("off", "prompt_lookup:max_n=3,match=latest", "auto", "off"));
  EXPECT_THAT(SplitModes("off"), ElementsAre("off"));
}

TEST_F(ModeBenchTest, OptionsAreChecked) {
  options_.modes = {"auto"};
  EXPECT_THAT(std::string(ModeBench::Check(options_).message()),
              HasSubstr("--modes: must include off"));
  options_.modes = {"off", "telepathy"};
  EXPECT_THAT(std::string(ModeBench::Check(options_).message()),
              HasSubstr("--modes: unknown mode 'telepathy'"));
  options_.modes = {"off"};
  options_.concurrency = {1, 16};
  options_.requests = 15;
  EXPECT_THAT(std::string(ModeBench::Check(options_).message()),
              HasSubstr("--requests=15: want at least one for each of 16"));
}

TEST_F(ModeBenchTest, EveryModeAnswersTheSameRequests) {
  options_.requests = 3;
  options_.pairs.pairs = 4;
  options_.pairs.seed = 70;
  options_.temperature = 0.5;
  ASSERT_THAT(Run(), testing::IsOk());
  std::map<std::string, std::vector<TokenId>> prompts;
  std::map<std::string, std::set<std::string>> modes_of_scope;
  for (const GenerationRequest& request : generator_.requests()) {
    const std::string mode = request.mode->ToString();
    prompts[mode].push_back(request.prompt[0]);
    modes_of_scope[request.cache_scope].insert(mode);
    EXPECT_EQ(request.sampling.seed, 60u + request.prompt[0]);
    EXPECT_EQ(request.sampling.temperature, 0.5f);
    EXPECT_EQ(request.max_tokens, 5);
    EXPECT_FALSE(request.ignore_eos);
  }
  // A warm-up of two, then each pair goes on where the one before ended.
  EXPECT_THAT(prompts["off"], ElementsAre(10, 11, 10, 11, 12, 13, 14, 10, 11,
                                          12, 13, 14, 10, 11));
  EXPECT_EQ(prompts["auto"], prompts["off"]);
  // No two slices share text.
  EXPECT_EQ(modes_of_scope.size(), 10u);
  for (const auto& [scope, modes] : modes_of_scope) {
    EXPECT_EQ(modes.size(), 1u) << scope;
  }
  EXPECT_EQ(most_requests_, 28);
  EXPECT_EQ(done_, 28);
}

TEST_F(ModeBenchTest, APromptsConstraintIsThatOfItsRequests) {
  prompts_[1].constraint = {Constraint::Kind::kRegex, "a*", {}};
  ASSERT_THAT(Run(), testing::IsOk());
  for (const GenerationRequest& request : generator_.requests()) {
    EXPECT_EQ(request.constraint,
              request.prompt[0] == 11 ? prompts_[1].constraint : Constraint());
  }
}

TEST_F(ModeBenchTest, TheReportHasEveryFigure) {
  options_.modes = {"off", "auto", "off", "prompt_lookup"};
  const auto result = Run();
  ASSERT_THAT(result, testing::IsOk());
  const Json report = ModeBenchJson(options_, prompts_.size(), *result);
  ASSERT_EQ(report["runs"].size(), 4u);
  const Json& off = report["runs"][0];
  EXPECT_EQ(off["mode"], "off");
  EXPECT_EQ(off["baseline"], true);
  EXPECT_EQ(off["ratio_to_off"], 1);
  EXPECT_EQ(off["accept_length"], 1);
  const Json& run = report["runs"][1];
  EXPECT_EQ(run["mode"], "auto");
  EXPECT_EQ(run["concurrency"], 1);
  EXPECT_EQ(run["baseline"], false);
  EXPECT_EQ(run["pairs"], 2);
  EXPECT_EQ(run["requests"], 16);
  EXPECT_EQ(run["refused"], 0);
  EXPECT_EQ(run["tokens"], 80);
  // Five tokens in three rounds of 10 ms, those of `off` in five.
  EXPECT_THAT(run["tokens_per_s"].get<double>(), DoubleEq(5 / 0.03));
  EXPECT_EQ(run["tokens_per_s_by_pair"].size(), 2u);
  for (const char* field : {"ratio_to_off", "ratio_low", "ratio_high"}) {
    EXPECT_NEAR(run[field].get<double>(), 5.0 / 3, 1e-9) << field;
  }
  EXPECT_NEAR(run["tokens_per_s_low"].get<double>(), 5 / 0.03, 1e-6);
  EXPECT_NEAR(run["tokens_per_s_high"].get<double>(), 5 / 0.03, 1e-6);
  EXPECT_EQ(run["accept_length"], 2);
  EXPECT_EQ(run["by_drafter"], Json({{"fused",
                                      {{"drafted", 128},
                                       {"accepted", 32},
                                       {"rounds", 32},
                                       {"degraded_rounds", 0},
                                       {"shortened_drafts", 0}}}}));
  // Four tokens in two rounds of 10 ms, those of `off` in four.
  EXPECT_NEAR(run["decode_tokens_per_s"].get<double>(), 200, 1e-6);
  EXPECT_NEAR(off["decode_tokens_per_s"].get<double>(), 100, 1e-6);
  for (const char* field :
       {"decode_ratio_to_off", "decode_ratio_low", "decode_ratio_high"}) {
    EXPECT_NEAR(run[field].get<double>(), 2, 1e-9) << field;
    EXPECT_EQ(off[field], 1) << field;
  }
  EXPECT_EQ(run["shortened_drafts"], 0);
  for (const Json* each : {&off, &run}) {
    EXPECT_NEAR((*each)["phases_ms"]["draft"].get<double>(), 2, 1e-9);
    EXPECT_NEAR((*each)["phases_ms"]["verify"].get<double>(), 5, 1e-9);
    EXPECT_NEAR((*each)["phases_ms"]["other"].get<double>(), 3, 1e-9);
  }
  for (const char* percentile : {"p50", "p95", "p99"}) {
    EXPECT_EQ(run["ttft_ms"][percentile], 10);
    EXPECT_EQ(run["itl_ms"][percentile], 5);
    EXPECT_EQ(run["latency_ms"][percentile], 30);
  }
  // The second `off` is measured like any other mode.
  EXPECT_EQ(report["runs"][2]["baseline"], false);
  EXPECT_NEAR(report["runs"][2]["ratio_to_off"].get<double>(), 1, 1e-9);

  ASSERT_EQ(report["pooled"].size(), 3u);
  EXPECT_EQ(report["pooled"][0]["mode"], "auto");
  EXPECT_NEAR(report["pooled"][0]["ratio_to_off"].get<double>(), 5.0 / 3, 1e-9);
  ASSERT_EQ(report["best_single"].size(), 1u);
  EXPECT_EQ(report["best_single"][0]["mode"], "auto");
  EXPECT_EQ(report["best_single"][0]["best"], "prompt_lookup");
  EXPECT_NEAR(report["best_single"][0]["ratio_to_best"].get<double>(), 1, 1e-9);
  EXPECT_TRUE(report["best_single"][0]["ratio_low"].is_null());  // one odd pair
  EXPECT_EQ(report["method"]["loop"], "closed");
  EXPECT_EQ(report["method"]["requests_per_slice"], Json({8}));
  EXPECT_GT(report["method"]["tokens_compared"], 0);

  const std::string markdown = ModeBenchMarkdown(report);
  EXPECT_THAT(markdown, HasSubstr("| 1 | off | 100.0 (100.0 to 100.0) | 1 |"));
  EXPECT_THAT(markdown, HasSubstr("| 1 | auto | 166.7 (166.7 to 166.7) | 1.667 "
                                  "(1.667 to 1.667) | 2 | 2.00 | 200.0 (200.0 "
                                  "to 200.0) | 2.000 (2.000 to 2.000) | 2.0 / "
                                  "5.0 / 3.0 | 0 | 10.0 / 10.0 / 10.0 |"));
  EXPECT_TRUE(report["machine"].is_null());
  EXPECT_THAT(markdown, Not(HasSubstr("Machine")));
  EXPECT_TRUE(report["left_out"].empty());
  EXPECT_THAT(markdown, HasSubstr("| auto | 1.667 (1.667 to 1.667) |"));
  EXPECT_THAT(markdown,
              HasSubstr("| 1 | auto | prompt_lookup | 1.000 (? to ?) |"));
}

// Its figures would be those of another mode.
TEST_F(ModeBenchTest, AModeWhoseDraftsWereCutShortIsLeftOut) {
  options_.modes = {"off", "ngram_trie", "auto", "prompt_lookup"};
  options_.concurrency = {1, 2};
  shortened_modes_ = {"auto", "ngram_trie"};
  const auto result = Run();
  ASSERT_THAT(result, testing::IsOk());
  EXPECT_THAT(ModesLeftOut(*result), ElementsAre("ngram_trie"));
  const Json report = ModeBenchJson(options_, prompts_.size(), *result);
  std::vector<std::string> modes;
  for (const Json& run : report["runs"]) modes.push_back(run["mode"]);
  EXPECT_THAT(modes, ElementsAre("off", "auto", "prompt_lookup", "off", "auto",
                                 "prompt_lookup"));
  EXPECT_EQ(report["runs"][1]["shortened_drafts"], 16) << "one of each request";
  ASSERT_EQ(report["pooled"].size(), 2u);
  EXPECT_EQ(report["pooled"][1]["mode"], "prompt_lookup");
  for (const Json& row : report["best_single"]) {
    EXPECT_EQ(row["best"], "prompt_lookup");
  }
  ASSERT_EQ(report["left_out"].size(), 2u);
  EXPECT_EQ(report["left_out"][1]["mode"], "ngram_trie");
  EXPECT_EQ(report["left_out"][1]["concurrency"], 2);
  EXPECT_EQ(report["left_out"][1]["shortened_drafts"], 16);
  EXPECT_THAT(ModeBenchMarkdown(report),
              HasSubstr("Left out: ngram_trie, at once 2: 16 of its drafts "
                        "came late or were cut off"));
  EXPECT_THAT(RatioPlot(report["runs"]), Not(HasSubstr("ngram_trie")));
}

TEST_F(ModeBenchTest, OutputsOfOneTokenHaveNoDecodeRate) {
  options_.max_tokens = 1;
  const auto result = Run();
  ASSERT_THAT(result, testing::IsOk());
  const Json report = ModeBenchJson(options_, prompts_.size(), *result,
                                    Json({{"threads", 2},
                                          {"read_gb_s", 25.04},
                                          {"fp32_multiply_adds_per_s", 2e11},
                                          {"int8_multiply_adds_per_s", 8e11}}));
  for (const char* field : {"decode_tokens_per_s", "decode_ratio_to_off"}) {
    EXPECT_TRUE(report["runs"][1][field].is_null()) << field;
  }
  EXPECT_TRUE(report["runs"][1]["phases_ms"]["draft"].is_null());
  EXPECT_THAT(ModeBenchMarkdown(report),
              StartsWith("Machine: 2 threads read 25.0 GB/s and multiply and "
                         "add 800 billion times a second in int8, 200 in "
                         "fp32.\n"));
}

TEST_F(ModeBenchTest, ADifferentTokenIsAnError) {
  wrong_mode_ = "auto";
  const absl::Status status = Run().status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("prompt 1 at position 1: token 0 in mode auto"));
}

TEST_F(ModeBenchTest, PairsAreAddedUpToTheMaximum) {
  // Nothing varies, so the second pair settles it.
  options_.pairs.pairs = 2;
  options_.pairs.max_pairs = 6;
  options_.pairs.until = 0.02;
  auto result = Run();
  ASSERT_THAT(result, testing::IsOk());
  EXPECT_EQ(result->cells[0].tokens_per_s.size(), 2u);

  // Each slice that is slower than the last keeps the interval wide.
  int answers = 0;
  FakeGenerator slower([&](const GenerationRequest& request, OnDelta on_delta) {
    if (request.mode->name() == "auto") {
      time_.Advance(absl::Milliseconds(++answers));
    }
    return Answer(request, on_delta);
  });
  ModeBench bench(options_, prompts_, slower, load_);
  result = bench.Run();
  ASSERT_THAT(result, testing::IsOk());
  EXPECT_EQ(result->cells[0].tokens_per_s.size(), 6u);
  EXPECT_EQ(result->cells[1].tokens_per_s.size(), 6u);
}

TEST_F(ModeBenchTest, ATraceGivesTimesAndLengths) {
  options_.arrivals = {{absl::ZeroDuration(), 2},
                       {absl::Seconds(8), 3},
                       {absl::Seconds(10), 9},
                       {absl::Seconds(14), 1}};
  options_.requests = 2;
  options_.speed = 4;
  const absl::Time start = time_.now();
  const auto result = Run();
  ASSERT_THAT(result, testing::IsOk());
  std::vector<int64_t> lengths;
  for (const GenerationRequest& request : generator_.requests()) {
    EXPECT_TRUE(request.ignore_eos);
    if (request.mode->name() == "off") lengths.push_back(request.max_tokens);
  }
  // The warm-up is closed; then a window of two rows for each pair, cut to
  // max_tokens.
  EXPECT_THAT(lengths, ElementsAre(2, 3, 2, 3, 5, 1));
  // 8 s and 4 s at four times the speed, for two modes, and little else.
  EXPECT_GE(time_.now() - start, absl::Seconds(6));
  EXPECT_LE(time_.now() - start, absl::Seconds(7));
  const Json report = ModeBenchJson(options_, prompts_.size(), *result);
  EXPECT_TRUE(report["runs"][0]["concurrency"].is_null());
  EXPECT_EQ(report["method"]["loop"], "open");
  EXPECT_EQ(report["method"]["speed"], 4);
  EXPECT_THAT(ModeBenchMarkdown(report), HasSubstr("| trace | auto |"));
  EXPECT_THAT(RatioPlot(report["runs"]), HasSubstr(">trace</text>"));
}

TEST_F(ModeBenchTest, ASliceThatIsRefusedWhollyIsAnError) {
  options_.arrivals = {{absl::ZeroDuration(), 2}};
  int answers = 0;
  FakeGenerator full(
      [&](const GenerationRequest& request,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        // The warm-up is served.
        if (++answers > 2) return absl::ResourceExhaustedError("full");
        return Answer(request, on_delta);
      });
  ModeBench bench(options_, prompts_, full, load_);
  EXPECT_THAT(std::string(bench.Run().status().message()),
              HasSubstr("all requests of a slice were refused"));
}

TEST_F(ModeBenchTest, ThePlotHasALineForEveryModeBesideTheBaseline) {
  options_.modes = {"off", "auto", "prompt_lookup:max_n=2"};
  options_.concurrency = {1, 2};
  load_.on_done = nullptr;
  const auto result = Run();
  ASSERT_THAT(result, testing::IsOk());
  const Json report = ModeBenchJson(options_, prompts_.size(), *result);
  const std::string svg = RatioPlot(report["runs"]);
  EXPECT_EQ(svg.find("<svg "), 0u);
  EXPECT_THAT(svg, HasSubstr(">auto</text>"));
  EXPECT_THAT(svg, HasSubstr(">prompt_lookup:max_n=2</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">off</text>")));
  EXPECT_THAT(svg, HasSubstr(">2</text>"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  size_t lines = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 2u);
}

TEST_F(ModeBenchTest, AFailureNamesModeAndConcurrency) {
  FakeGenerator broken(
      [&](const GenerationRequest& request,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        if (request.mode->name() == "auto") {
          return absl::UnimplementedError("no such service");
        }
        return Answer(request, on_delta);
      });
  ModeBench bench(options_, prompts_, broken, load_);
  const absl::Status status = bench.Run().status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("mode auto, 1 at once: prompt 1: no such service"));
}

}  // namespace
}  // namespace foretoken::mode_bench
