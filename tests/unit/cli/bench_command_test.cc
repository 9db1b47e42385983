#include <string>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTiny[] =
    "bench engine --threads 1 --json --random "
    "d_model=32,layers=1,heads=2,kv_heads=1,d_ff=32,vocab=64";

TEST(BenchCommandTest, EngineReportsEveryPass) {
  testing::TempDir dir;
  const auto ran = testing::RunCommand(dir, kTiny);
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(ran.out.find('\n'), ran.out.size() - 1);
  const auto json = ParseJson(ran.out);
  ASSERT_THAT(json, testing::IsOk());
  EXPECT_EQ(json->size(), 7u);
  ASSERT_EQ((*json)["passes"].size(), 14u);
  size_t i = 0;
  for (const int context : {0, 1024}) {
    for (const int rows : {1, 2, 4, 8, 16, 32, 64}) {
      const Json& pass = (*json)["passes"][i++];
      EXPECT_EQ(pass["context"], context);
      EXPECT_EQ(pass["rows"], rows);
      EXPECT_GT(pass["ms"].get<double>(), 0.0);
      EXPECT_GT(pass["cpu_ms"].get<double>(), 0.0);
      if (rows == 1) {
        EXPECT_EQ(pass["ratio"], 1.0);
      }
      EXPECT_GT(pass["roofline_share"].get<double>(), 0.0);
      EXPECT_EQ(pass.size(), 6u);
    }
  }
  for (const char* field : {"read_bandwidth_gb_s", "bandwidth_share",
                            "product_ms_per_row", "prefill_tokens_per_s"}) {
    EXPECT_GT((*json)[field].get<double>(), 0.0) << field;
  }
}

TEST(BenchCommandTest, EngineMeasuresWhatIsAskedFor) {
  testing::TempDir dir;
  const auto ran = testing::RunCommand(
      dir, std::string(kTiny) +
               " --backend cpu --contexts 64 --rows 1,3 --batch 4x8,2x1 "
               "--prefill 16 --repeats 1");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  const auto json = ParseJson(ran.out);
  ASSERT_THAT(json, testing::IsOk());
  ASSERT_EQ((*json)["passes"].size(), 2u);
  EXPECT_EQ((*json)["passes"][1]["rows"], 3);
  ASSERT_EQ((*json)["batches"].size(), 2u);
  EXPECT_EQ((*json)["batches"][0]["sessions"], 4);
  EXPECT_EQ((*json)["batches"][0]["rows"], 8);
  EXPECT_EQ((*json)["batches"][0]["context"], 64);
  const auto bad =
      testing::RunCommand(dir, std::string(kTiny) + " --batch 4by8");
  EXPECT_EQ(bad.exit_status, 1);
  EXPECT_THAT(bad.err, HasSubstr("\"4by8\", want SESSIONSxROWS"));
}

TEST(BenchCommandTest, PassesOfADraftModelCanBeMeasured) {
  testing::TempDir dir;
  const auto ran = testing::RunCommand(
      dir, std::string(kTiny) +
               " --contexts 0 --rows 1 --repeats 1 --draft-weights q8_0 "
               "--draft-vocabulary 40");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  const auto json = ParseJson(ran.out);
  ASSERT_THAT(json, testing::IsOk());
  EXPECT_THAT((*json)["numerics"].get<std::string>(),
              HasSubstr(";conversion=q8_0;head=40,"));
}

TEST(BenchCommandTest, TheInstructionSetIsAnOption) {
  testing::TempDir dir;
  const std::string one_pass =
      std::string(kTiny) + " --contexts 0 --rows 1 --repeats 1 --isa ";
  const auto ran = testing::RunCommand(dir, one_pass + "scalar");
  ASSERT_EQ(ran.exit_status, 0) << ran.err;
  const auto json = ParseJson(ran.out);
  ASSERT_THAT(json, testing::IsOk());
  EXPECT_THAT((*json)["numerics"].get<std::string>(),
              HasSubstr(";isa=common;"));
  const auto bad = testing::RunCommand(dir, one_pass + "sse2");
  EXPECT_NE(bad.exit_status, 0);
  EXPECT_THAT(bad.err, HasSubstr("--isa: sse2 not in {auto,avx512bf16,"));
}

TEST(BenchCommandTest, RandomWeightsMayBeQuantised) {
  testing::TempDir dir;
  const std::string one_pass =
      std::string(kTiny) + " --contexts 0 --rows 1 --repeats 1 --weights ";
  const auto ran = testing::RunCommand(dir, one_pass + "q8_0");
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_THAT(testing::RunCommand(dir, one_pass + "q2_k").err,
              HasSubstr("random weights: \"q2_k\", want f32, f16, bf16, q8_0"));
  EXPECT_THAT(testing::RunCommand(dir, one_pass + "q4_k").err,
              HasSubstr("model.embed_tokens.weight has rows of 32, want a "
                        "multiple of 256 for Q4_K"));
}

TEST(BenchCommandTest, BadShapesAndAFullDiskAreErrors) {
  testing::TempDir dir;
  const auto bad = testing::RunCommand(dir, "bench engine --random d_model=0");
  EXPECT_EQ(bad.exit_status, 1);
  EXPECT_THAT(bad.out, IsEmpty());
  EXPECT_THAT(bad.err, HasSubstr("random model: "));
  const auto unknown =
      testing::RunCommand(dir, "bench engine --random llama-9");
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("\"llama-9\", want d_model|"));
  EXPECT_THAT(unknown.err, HasSubstr("llama-3-8b|llama-2-7b"));
  EXPECT_THAT(testing::RunCommand(dir, "bench engine").err,
              HasSubstr("want either --model or --random"));
  const auto full = testing::RunCommand(dir, kTiny, "", "/dev/full");
  EXPECT_EQ(full.exit_status, 1);
  EXPECT_THAT(full.err, HasSubstr("DATA_LOSS: stdout"));
}

}  // namespace
}  // namespace foretoken
