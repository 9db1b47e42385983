// The files of prompts that `bench modes` and `prior grow` read.
#include "tools/cli/prompt_file.h"

#include <string>

#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class PromptFileTest : public ::testing::Test {
 protected:
  std::string ErrorOf(const std::string& text,
                      const ChatFormat& chat = ChatFormat::ChatMl()) {
    const auto prompts = ReadPromptFile(dir_.Write("p.jsonl", text), chat);
    return std::string(prompts.status().message());
  }

  testing::TempDir dir_;
};

TEST_F(PromptFileTest, PromptsAreTextsIdsOrMessages) {
  const auto prompts = ReadPromptFile(
      dir_.Write("p.jsonl",
                 "{\"prompt\": \"once\", \"task\": \"story\"}\n"
                 "\n"
                 "{\"prompt_ids\": [0, 7]}\n"
                 "{\"messages\": [{\"role\": \"system\", \"content\": \"Be "
                 "brief.\"}, {\"role\": \"user\", \"content\": \"Hi\"}]}\n"),
      ChatFormat::ChatMl());
  ASSERT_THAT(prompts, testing::IsOk());
  ASSERT_EQ(prompts->size(), 3u);
  EXPECT_EQ((*prompts)[0].text, "once");
  EXPECT_FALSE((*prompts)[1].text.has_value());
  EXPECT_THAT((*prompts)[1].ids, ElementsAre(0, 7));
  EXPECT_EQ((*prompts)[2].text,
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST_F(PromptFileTest, APromptMayHaveAConstraint) {
  using Kind = Constraint::Kind;
  const auto prompts = ReadPromptFile(
      dir_.Write(
          "p.jsonl",
          R"({"prompt": "a", "constraint": {"json_schema": {"z": 1, "a": 2}}})"
          "\n"
          R"({"prompt": "a", "constraint": {"json_object": true}})"
          "\n"
          R"({"constraint": {"regex": "a\"b"}, "prompt_ids": [1]})"
          "\n"
          R"({"prompt": "a", "constraint": {"grammar": "root ::= [a]"}})"
          "\n"
          R"({"prompt": "a", "constraint": {"choice": ["x", "y"]}})"
          "\n"
          R"({"prompt": "a"})"),
      ChatFormat::ChatMl());
  ASSERT_THAT(prompts, testing::IsOk());
  const std::vector<Constraint> want = {
      {Kind::kJsonSchema, R"({"z": 1, "a": 2})", {}},
      {Kind::kJsonObject, "", {}},
      {Kind::kRegex, "a\"b", {}},
      {Kind::kGrammar, "root ::= [a]", {}},
      {Kind::kChoice, "", {"x", "y"}},
      {}};
  ASSERT_EQ(prompts->size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ((*prompts)[i].constraint, want[i]) << i;
  }
}

TEST_F(PromptFileTest, ConstraintsOfNoMeaningAreErrors) {
  for (const char* constraint :
       {"{}", "\"a\"", "{\"json\": {}}", "{\"json_object\": false}",
        "{\"json_schema\": \"{}\"}", "{\"regex\": 1}", "{\"choice\": []}",
        "{\"choice\": [1]}", "{\"regex\": \"a\", \"choice\": [\"a\"]}"}) {
    EXPECT_THAT(ErrorOf(std::string("{\"prompt\": \"a\", \"constraint\": ") +
                        constraint + "}"),
                HasSubstr("p.jsonl:1: field \"constraint\": want one of"))
        << constraint;
  }
}

TEST_F(PromptFileTest, ErrorsOfPromptsNameLineAndField) {
  EXPECT_THAT(ErrorOf("{\"prompt\": \"a\"}\n{\"prompt\": 3}\n"),
              EndsWith("p.jsonl:2: field \"prompt\": want a string"));
  EXPECT_THAT(ErrorOf("{\"prompt\": \"\"}"),
              EndsWith("p.jsonl:1: field \"prompt\": want a text, have none"));
  EXPECT_THAT(ErrorOf("{\"text\": \"a\"}"),
              HasSubstr("p.jsonl:1: has 0 of the fields \"prompt\""));
  EXPECT_THAT(ErrorOf("{\"prompt\": \"a\", \"prompt_ids\": [1]}"),
              HasSubstr("p.jsonl:1: has 2 of the fields"));
  for (const char* ids : {"[]", "[-1]", "[1.5]", "[2147483648]", "7"}) {
    EXPECT_THAT(ErrorOf(std::string("{\"prompt_ids\": ") + ids + "}"),
                HasSubstr("p.jsonl:1: field \"prompt_ids\": want a list"))
        << ids;
  }
  EXPECT_THAT(ErrorOf("{\"messages\": []}"),
              HasSubstr("field \"messages\": want a list with at least one"));
  EXPECT_THAT(ErrorOf("{\"messages\": [{\"role\": \"user\"}]}"),
              HasSubstr("messages[0]: field \"content\": want a string"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("p.jsonl:1: a JSON array"));
  EXPECT_THAT(ErrorOf("\n"), EndsWith("p.jsonl: no prompts"));
}

TEST_F(PromptFileTest, MessagesNeedAFormat) {
  EXPECT_THAT(
      ErrorOf("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
              ChatFormat::None()),
      HasSubstr("p.jsonl:1: field \"messages\": want --chat auto"));
}

TEST_F(PromptFileTest, AutoIsTheTemplateOfTheModel) {
  dir_.Write("tokenizer.json", testing::TinyTokenizerJson());
  EXPECT_THAT(ChatFormat::Open("auto", dir_.path()),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("has no chat template")));
  EXPECT_THAT(ChatFormat::Open("auto", ""),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("--tokenizer")));
  EXPECT_THAT(ChatFormat::Open("llama", ""),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("want none, chatml or auto")));
  dir_.Write("chat_template.jinja",
             "{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto format = ChatFormat::Open("auto", dir_.path());
  ASSERT_THAT(format, testing::IsOk());
  const auto prompts = ReadPromptFile(
      dir_.Write("p.jsonl",
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}, "
                 "{\"role\": \"user\", \"content\": \"c\"}]}\n"),
      *format);
  ASSERT_THAT(prompts, testing::IsOk());
  const auto tokenizer = Tokenizer::Load(dir_.path());
  ASSERT_THAT(tokenizer, testing::IsOk());
  EXPECT_FALSE((*prompts)[0].text.has_value());
  EXPECT_EQ((*prompts)[0].ids, (*tokenizer)->Encode("abc"));
}

TEST_F(PromptFileTest, TooManyPromptsAreRefused) {
  std::string text;
  for (size_t i = 0; i <= kMaxPrompts; ++i) text += "{\"prompt_ids\":[1]}\n";
  EXPECT_THAT(ErrorOf(text), HasSubstr("p.jsonl:100001: too much"));
}

}  // namespace
}  // namespace foretoken::cli
