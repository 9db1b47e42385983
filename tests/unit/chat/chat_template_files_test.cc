#include "common/text/chat/chat_template_files.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNull;
using ::testing::Pair;

TEST(ChatTemplateFilesTest, OneTemplateOfTheTokenizerConfig) {
  const TempDir dir;
  dir.Write("tokenizer_config.json",
            R"({"bos_token": "<s>", "eos_token": {"content": "</s>"},
                "chat_template": "{{ a }}"})");
  const auto found = FindChatTemplates(dir.path());
  FORETOKEN_ASSERT_OK(found);
  EXPECT_THAT(found->templates, ElementsAre(Pair("default", "{{ a }}")));
  EXPECT_EQ(found->tokens.bos, "<s>");
  EXPECT_EQ(found->tokens.eos, "</s>");
  EXPECT_EQ(*found->Choose(true), "{{ a }}");
}

TEST(ChatTemplateFilesTest, NamedTemplatesAreChosenByTools) {
  const TempDir dir;
  dir.Write("tokenizer_config.json",
            R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                  {"name": "default", "template": "d"},
                                  {"name": "rag", "template": "r"}]})");
  const auto found = FindChatTemplates(dir.path());
  FORETOKEN_ASSERT_OK(found);
  EXPECT_EQ(found->templates.size(), 3u);
  EXPECT_EQ(*found->Choose(false), "d");
  EXPECT_EQ(*found->Choose(true), "t");
}

TEST(ChatTemplateFilesTest, AFileOfItsOwnTakesPrecedence) {
  const TempDir dir;
  dir.Write("tokenizer_config.json", R"({"chat_template": "old"})");
  dir.Write("chat_template.jinja", "new");
  const auto found = FindChatTemplates(dir.path());
  FORETOKEN_ASSERT_OK(found);
  EXPECT_THAT(found->templates, ElementsAre(Pair("default", "new")));
}

TEST(ChatTemplateFilesTest, FilesOfTheirOwnReplaceAllOfTheTokenizerConfig) {
  const TempDir dir;
  dir.Write("tokenizer_config.json",
            R"({"chat_template": [{"name": "default", "template": "old"},
                                  {"name": "rag", "template": "old"}]})");
  std::filesystem::create_directory(dir.File("additional_chat_templates"));
  dir.Write("additional_chat_templates/tool_use.jinja", "t");
  dir.Write("additional_chat_templates/b.jinja", "b");
  dir.Write("additional_chat_templates/notes.txt", "no template");
  auto found = FindChatTemplates(dir.path());
  FORETOKEN_ASSERT_OK(found);
  EXPECT_THAT(found->templates,
              ElementsAre(Pair("b", "b"), Pair("tool_use", "t")));
  EXPECT_THAT(found->Choose(false), IsNull());
  dir.Write("chat_template.jinja", "new");
  found = FindChatTemplates(dir.path());
  FORETOKEN_ASSERT_OK(found);
  EXPECT_THAT(found->templates,
              ElementsAre(Pair("default", "new"), Pair("b", "b"),
                          Pair("tool_use", "t")));
  for (int i = 0; i < 64; ++i) {
    dir.Write("additional_chat_templates/" + std::to_string(i) + ".jinja", "");
  }
  EXPECT_THAT(FindChatTemplates(dir.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("64")));
}

TEST(ChatTemplateFilesTest, AModelMayHaveNone) {
  const TempDir dir;
  const auto found = FindChatTemplates(dir.path());
  FORETOKEN_ASSERT_OK(found);
  EXPECT_THAT(found->templates, IsEmpty());
  EXPECT_THAT(found->Choose(false), IsNull());
  EXPECT_THAT(FindChatTemplates(dir.File("missing")),
              StatusIs(absl::StatusCode::kNotFound, ::testing::_));
}

TEST(ChatTemplateFilesTest, TheMetadataOfAGgufFile) {
  GgufWriter writer;
  writer.String("tokenizer.chat_template", "d");
  writer.String("tokenizer.chat_template.tool_use", "t");
  writer.Strings("tokenizer.ggml.tokens", {{"a", "<s>", "</s>"}});
  writer.Uint32("tokenizer.ggml.bos_token_id", 1);
  writer.Uint32("tokenizer.ggml.eos_token_id", 2);
  const TempDir dir;
  const auto found =
      FindChatTemplates(dir.Write("model.gguf", writer.Header()));
  FORETOKEN_ASSERT_OK(found);
  EXPECT_EQ(*found->Choose(false), "d");
  EXPECT_EQ(*found->Choose(true), "t");
  EXPECT_EQ(found->tokens.bos, "<s>");
  EXPECT_EQ(found->tokens.eos, "</s>");
}

}  // namespace
}  // namespace foretoken
