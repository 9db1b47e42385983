#include "common/drafting/recorded_set.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/unit/drafting/letter_tokenizer.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGood[] =
    R"({"id": "a", "category": "chat", "task": "qa", "turns": [)"
    R"({"prompt_text_full": "xy", "output_text": "z"},)"
    R"({"prompt_text_full": "x</s>y", "output_text": "zz", "finish": "length"})"
    "]}\n"
    R"({"id": "b", "category": "chat", "turns": [)"
    R"({"prompt_text_full": "</s>", "output_text": "", "finish": "eos"}]})"
    "\n";

TEST(RecordedSetTest, EveryTurnIsARequest) {
  TempDir dir;
  const absl::StatusOr<RecordedSet> set =
      ReadRecordedSet(dir.Write("set.jsonl", kGood), LetterTokenizer());
  FORETOKEN_ASSERT_OK(set);
  ASSERT_EQ(set->turns.size(), 3u);
  const TokenId bos = LetterTokenizer::kBos, eos = LetterTokenizer::kEos;

  EXPECT_EQ(set->turns[0].id, "a");
  EXPECT_EQ(set->turns[0].category, "qa");  // task before category
  EXPECT_THAT(set->turns[0].prompt, ElementsAre(bos, 'x', 'y'));
  EXPECT_THAT(set->turns[0].output, ElementsAre('z', eos));
  EXPECT_FALSE(set->turns[0].hit_length_limit);

  EXPECT_THAT(set->turns[1].prompt, ElementsAre(bos, 'x', eos, 'y'));
  EXPECT_THAT(set->turns[1].output, ElementsAre('z', 'z'));
  EXPECT_TRUE(set->turns[1].hit_length_limit);

  EXPECT_EQ(set->turns[2].category, "chat");
  EXPECT_THAT(set->turns[2].prompt, ElementsAre(bos, eos));
  EXPECT_THAT(set->turns[2].output, ElementsAre(eos));

  EXPECT_EQ(set->prompt_tokens(), 3 + 4 + 2);
  EXPECT_EQ(set->output_tokens(), 2 + 2 + 1);
}

TEST(RecordedSetTest, GivesTheIdsOfTheRows) {
  TempDir dir;
  const auto set =
      ReadRecordedSet(dir.Write("set.jsonl", kGood), LetterTokenizer());
  FORETOKEN_ASSERT_OK(set);
  std::vector<std::string> ids;
  for (const RecordedTurn& turn : set->turns) {
    if (ids.empty() || ids.back() != turn.id) ids.push_back(turn.id);
  }
  EXPECT_THAT(ids, ElementsAre("a", "b"));
}

struct BadCase {
  std::string name;
  std::string row;
  std::string message;
};

class BadRecordedSetTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadRecordedSetTest, IsRefusedByFileLineAndField) {
  TempDir dir;
  const std::string path =
      dir.Write("set.jsonl", kGood + GetParam().row + "\n");
  EXPECT_THAT(
      ReadRecordedSet(path, LetterTokenizer()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(path + ":3"), HasSubstr(GetParam().message))));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, BadRecordedSetTest,
    ::testing::Values(
        BadCase{"MalformedJson", R"({"id": "c", "turns": [)", "column"},
        BadCase{"NotAnObject", "[1, 2]", "want an object"},
        BadCase{"NoId", R"({"turns": []})", "field \"id\": want a string"},
        BadCase{"NumericId", R"({"id": 7, "turns": []})",
                "field \"id\": want a string"},
        BadCase{"NoTurns", R"({"id": "c"})", "field \"turns\": want a list"},
        BadCase{"EmptyTurns", R"({"id": "c", "turns": []})",
                "field \"turns\": want a list"},
        BadCase{"TurnIsText", R"({"id": "c", "turns": ["x"]})",
                "turn 0: want an object"},
        BadCase{"NoOutput",
                R"({"id": "c", "turns": [{"prompt_text_full": "x"}]})",
                "turn 0: field \"output_text\": want a string, have nothing"},
        BadCase{"NoPrompt", R"({"id": "c", "turns": [{"output_text": "x"}]})",
                "field \"prompt_text_full\""},
        BadCase{"BadFinish",
                R"({"id": "c", "turns": [{"prompt_text_full": "x",)"
                R"( "output_text": "y", "finish": "stop"}]})",
                "field \"finish\": want \"eos\" or \"length\", have \"stop\""},
        BadCase{"BadTask",
                R"({"id": "c", "task": 3, "turns": [)"
                R"({"prompt_text_full": "x", "output_text": "y"}]})",
                "field \"task\""},
        BadCase{"NothingWritten",
                R"({"id": "c", "turns": [{"prompt_text_full": "x",)"
                R"( "output_text": "", "finish": "length"}]})",
                "want at least one token"},
        // The tokenizer does not know '#'.
        BadCase{"OutputNotGivenBack",
                R"({"id": "c", "turns": [{"prompt_text_full": "x",)"
                R"( "output_text": "ab#"}]})",
                "turn 0: field \"output_text\": the tokenizer's ids do not "
                "decode to the text from byte 2"},
        BadCase{"PromptNotGivenBack",
                R"({"id": "c", "turns": [{"prompt_text_full": "x</s>#",)"
                R"( "output_text": "ab"}]})",
                "field \"prompt_text_full\": the tokenizer's ids do not"}),
    [](const auto& test) { return test.param.name; });

TEST(RecordedSetTest, AMissingOrEmptyFileIsAnError) {
  TempDir dir;
  EXPECT_THAT(ReadRecordedSet(dir.File("none"), LetterTokenizer()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(ReadRecordedSet(dir.Write("empty", "\n"), LetterTokenizer()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no recorded turns")));
}

struct Totals {
  std::string file;
  size_t turns;
  int64_t prompt_tokens;
  int64_t output_tokens;
};

class RecordedTotalsTest : public ::testing::TestWithParam<Totals> {};

TEST_P(RecordedTotalsTest, AreThoseOfTheOriginalTokenizer) {
  FORETOKEN_DATA_OR_SKIP(model, "tokenizers/llama2/tokenizer.model");
  FORETOKEN_DATA_OR_SKIP(path, "recorded/" + GetParam().file + ".jsonl.gz");
  const auto tokenizer = Tokenizer::Load(model);
  FORETOKEN_ASSERT_OK(tokenizer);
  const auto set = ReadRecordedSet(path, **tokenizer);
  FORETOKEN_ASSERT_OK(set);
  EXPECT_EQ(set->turns.size(), GetParam().turns);
  EXPECT_EQ(set->prompt_tokens(), GetParam().prompt_tokens);
  EXPECT_EQ(set->output_tokens(), GetParam().output_tokens);
}

INSTANTIATE_TEST_SUITE_P(
    Sets, RecordedTotalsTest,
    ::testing::Values(
        Totals{"specbench_vicuna-7b-v1.3", 392, 144078, 64569},
        Totals{"mtbench_vicuna-7b-v1.5", 112, 29904, 28185},
        Totals{"shopping_vicuna-7b-v1.3", 105, 23280, 13195},
        Totals{"classeval_codellama-13b-instruct", 70, 50083, 55306},
        Totals{"financebench_gpt-4-turbo-oracle", 105, 149232, 32713},
        Totals{"code_wizardcoder-33b-v1.1", 393, 51313, 89578},
        Totals{"gsm8k_gpt3-175b-finetuned", 923, 64441, 124738}),
    [](const auto& test) {
      return test.param.file.substr(0, test.param.file.find('_'));
    });

}  // namespace
}  // namespace foretoken
