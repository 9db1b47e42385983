#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kDemo[] = "tools/demo/target";

testing::CommandResult Quantize(testing::TempDir& dir, const std::string& model,
                                const std::string& type,
                                const std::string& out) {
  return testing::RunCommand(dir, "quantize --model '" + model + "' --type " +
                                      type + " --out '" + dir.File(out) + "'");
}

TEST(QuantizeCommandTest, TheFileHasModelAndTokenizerAndSpeaks) {
  testing::TempDir dir;
  const std::string demo = testing::SourcePath(kDemo);
  const auto made = Quantize(dir, demo, "q8_0", "demo.gguf");
  ASSERT_EQ(made.exit_status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("demo.gguf: "));
  const std::string file = dir.File("demo.gguf");

  const auto seen = testing::RunCommand(dir, "inspect '" + file + "'");
  EXPECT_EQ(seen.exit_status, 0) << seen.err;
  EXPECT_THAT(seen.out,
              AllOf(HasSubstr("GGUF, 1 file"), HasSubstr("\"llama\""),
                    HasSubstr("Q8_0"), HasSubstr("supported: llama, "),
                    HasSubstr("fingerprint")));
  const auto tokenize = [&](const std::string& tokenizer) {
    return testing::RunCommand(dir, "tokenize --tokenizer '" + tokenizer + "'",
                               "{\"text\":\"def f(x):\\n  return 10\"}\n");
  };
  EXPECT_EQ(tokenize(file).out, tokenize(demo).out);

  const std::string flags =
      "' --prompt 'Once upon a time' --max-tokens 8 "
      "--threads 1 --mode off --json";
  const auto spoken =
      testing::RunCommand(dir, "generate --local --model '" + file + flags);
  EXPECT_EQ(spoken.exit_status, 0) << spoken.err;
  const auto original =
      testing::RunCommand(dir, "generate --local --model '" + demo + flags);
  EXPECT_THAT(spoken.out, HasSubstr("\"text\""));
  EXPECT_EQ(original.exit_status, 0) << original.err;
  // From the file to another file, and as four bits.
  const auto again = Quantize(dir, file, "q4_0", "small.gguf");
  ASSERT_EQ(again.exit_status, 0) << again.err;
  EXPECT_LT(std::filesystem::file_size(dir.File("small.gguf")),
            std::filesystem::file_size(file));
  EXPECT_EQ(tokenize(dir.File("small.gguf")).out, tokenize(demo).out);
}

// The tokenizer names one of the model's end tokens, which are several.
TEST(QuantizeCommandTest, TheFileStopsAtEveryEndTokenOfTheModel) {
  testing::TempDir dir;
  const std::string model = dir.File("model");
  std::filesystem::copy(testing::SourcePath(kDemo), model);
  const auto end_tokens = [&](const std::string& list) {
    dir.Write("model/generation_config.json",
              "{\"eos_token_id\": " + list + "}");
    return Quantize(dir, model, "q8_0", "ends.gguf");
  };
  const auto made = end_tokens("[0, 8, 9]");
  ASSERT_EQ(made.exit_status, 0) << made.err;
  EXPECT_THAT(
      testing::RunCommand(dir, "inspect '" + dir.File("ends.gguf") + "'").out,
      HasSubstr("end tokens     0 8 9\n"));
  const auto refused = end_tokens("[0, 8, 9, 10]");
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("end token 10: GGUF has keys for three"));
}

TEST(QuantizeCommandTest, OtherTypesThanWantedAreSaidAloud) {
  testing::TempDir dir;
  // Rows of 32 and 44 elements, no tokenizer.
  const auto made =
      Quantize(dir, testing::SourcePath("tests/golden/models/llama_plain_fp32"),
               "q4_k_m", "tiny.gguf");
  ASSERT_EQ(made.exit_status, 0) << made.err;
  EXPECT_THAT(
      made.err,
      AllOf(HasSubstr("no tokenizer in the file"),
            HasSubstr("Q5_0 instead of Q4_K, whose blocks their rows"),
            HasSubstr("F16 instead of"), HasSubstr("Q8_0 instead of Q6_K")));
  const auto seen =
      testing::RunCommand(dir, "inspect '" + dir.File("tiny.gguf") + "'");
  EXPECT_THAT(seen.out, AllOf(HasSubstr("tokenizer      none"),
                              HasSubstr("supported: llama, 2 layers")));
}

TEST(QuantizeCommandTest, BadOptionsAndModelsAreNamed) {
  testing::TempDir dir;
  const auto type = Quantize(dir, "x", "q3_k", "x.gguf");
  EXPECT_EQ(type.exit_status, 2);
  EXPECT_THAT(type.err, HasSubstr("q4_k_m"));
  const auto cut = Quantize(dir, dir.Write("cut.gguf", "GGUF"), "q8_0", "x");
  EXPECT_EQ(cut.exit_status, 1);
  EXPECT_THAT(cut.err, HasSubstr("cut.gguf: version of 4 bytes"));
  const auto seen =
      testing::RunCommand(dir, "inspect '" + dir.File("missing") + "'");
  EXPECT_EQ(seen.exit_status, 1);
  EXPECT_THAT(seen.err, HasSubstr("missing: no such file or directory"));
  const auto text = testing::RunCommand(
      dir, "inspect '" + dir.Write("notes.txt", "not a model") + "'");
  EXPECT_EQ(text.exit_status, 1);
  EXPECT_THAT(text.err, HasSubstr("not a GGUF file or model directory"));
  EXPECT_FALSE(std::filesystem::exists(dir.File("x")));
}

TEST(InspectCommandTest, AConfigThatIsNoObjectIsNamed) {
  for (const char* config : {"[]", "3", "null", "\"llama\""}) {
    testing::TempDir dir;
    dir.Write("config.json", config);
    const auto seen = testing::RunCommand(dir, "inspect '" + dir.path() + "'");
    EXPECT_EQ(seen.exit_status, 1) << config;
    EXPECT_THAT(seen.err, HasSubstr("config.json: not a JSON object"));
  }
}

TEST(InspectCommandTest, WhatIsNotSupportedIsNamedWithTheReason) {
  testing::TempDir dir;
  const auto directory =
      testing::RunCommand(dir, "inspect '" + testing::SourcePath(kDemo) + "'");
  EXPECT_EQ(directory.exit_status, 0) << directory.err;
  EXPECT_THAT(directory.out, AllOf(HasSubstr("Hugging Face, 1 file"),
                                   HasSubstr("BF16"), HasSubstr("tokens")));
  const auto blocks = testing::RunCommand(
      dir,
      "inspect '" + testing::SourcePath("tests/golden/gguf/blocks.gguf") + "'");
  EXPECT_EQ(blocks.exit_status, 1);
  EXPECT_THAT(blocks.err,
              HasSubstr("foretoken: UNIMPLEMENTED: model not supported: "));
  EXPECT_THAT(
      blocks.out,
      AllOf(HasSubstr("Q6_K"), HasSubstr("model          NOT SUPPORTED: "),
            HasSubstr("general.architecture is \"none\", want llama"),
            HasSubstr("tokenizer      none")));
}

}  // namespace
}  // namespace foretoken
