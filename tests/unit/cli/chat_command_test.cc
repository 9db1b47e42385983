// `foretoken chat` and `generate --chat` as a user runs them: the real binary,
// a tiny checkpoint, stdin that is no terminal.
#include <filesystem>
#include <string>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken {
namespace {

using ::foretoken::testing::CommandResult;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ChatCommandTest : public ::testing::Test {
 protected:
  ChatCommandTest() : model_(dir_.File("model")) {
    std::filesystem::copy(
        testing::SourcePath("tests/golden/models/llama_plain_fp32"), model_,
        std::filesystem::copy_options::recursive);
    dir_.Write("model/tokenizer.json", testing::TinyTokenizerJson());
    dir_.Write("model/generation_config.json",
               DumpJson({{"bos_token_id", 0}, {"eos_token_id", 2}}));
  }

  void WriteTemplate() {
    dir_.Write("model/chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{{ m.content }} "
               "{% endfor %}");
  }

  CommandResult Run(const std::string& arguments,
                    const std::string& input = "") {
    return testing::RunCommand(dir_, arguments, input);
  }
  std::string Model() const {
    return " --model '" + model_ + "' --precision fp32 --threads 1 ";
  }
  CommandResult Chat(const std::string& arguments, const std::string& input) {
    return Run("chat" + Model() +
                   "--ignore-eos --max-tokens 8 --mode off "
                   "--history '" +
                   dir_.File("history") + "' " + arguments,
               input);
  }

  testing::TempDir dir_;
  const std::string model_;
};

TEST_F(ChatCommandTest, AnswersEveryLineOfItsInput) {
  WriteTemplate();
  const CommandResult first = Chat("--seed 3", "the an\n");
  EXPECT_EQ(first.exit_status, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("8 tokens"));
  EXPECT_THAT(first.err, HasSubstr("mode off, seed 3"));
  // No prompt, no colours, no file of history: it is no terminal.
  EXPECT_THAT(first.out + first.err, Not(HasSubstr("\x1b[")));
  EXPECT_THAT(first.out, Not(HasSubstr("> ")));
  EXPECT_FALSE(std::filesystem::exists(dir_.File("history")));

  const CommandResult both = Chat("--seed 3", "the an\nhe in\n/stats\n/quit\n");
  EXPECT_EQ(both.exit_status, 0) << both.err;
  EXPECT_THAT(both.out, StartsWith(first.out));
  EXPECT_GT(both.out.size(), first.out.size());
  EXPECT_THAT(both.err, HasSubstr("2 answers of 16 tokens"));

  const CommandResult said = Chat("--local --seed 3", "the an\n");
  EXPECT_EQ(said.exit_status, 0) << said.err;
  EXPECT_EQ(said.out, first.out);

  // The same prompt as one command.
  const CommandResult generated =
      Run("generate" + Model() +
          "--ignore-eos --max-tokens 8 --mode off --chat auto --prompt "
          "'the an'");
  EXPECT_EQ(generated.exit_status, 0) << generated.err;
  EXPECT_EQ(generated.out, first.out);
}

TEST_F(ChatCommandTest, ShowsDraftersWithoutColoursWhereThereIsNoTerminal) {
  WriteTemplate();
  const CommandResult plain = Chat("", "the an\n");
  const CommandResult shown = Chat("--show-drafters", "the an\n");
  EXPECT_EQ(shown.exit_status, 0) << shown.err;
  EXPECT_EQ(shown.out, plain.out);
  EXPECT_THAT(shown.err, HasSubstr("target 8\n"));
  const CommandResult generated = Run(
      "generate --local" + Model() +
      "--ignore-eos --max-tokens 8 --mode off --prompt 'the' --show-drafters");
  EXPECT_EQ(generated.exit_status, 0) << generated.err;
  EXPECT_THAT(generated.err, HasSubstr("target 8\n"));
}

TEST_F(ChatCommandTest, ATemplateOfOnesOwnReplacesThatOfTheModel) {
  const CommandResult none = Chat("", "the an\n");
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.err, HasSubstr("has no chat template"));
  EXPECT_THAT(none.out, IsEmpty());
  const std::string file =
      dir_.Write("own.jinja", "{{ messages[-1].content }}");
  const CommandResult own = Chat("--chat-template '" + file + "'", "the an\n");
  EXPECT_EQ(own.exit_status, 0) << own.err;
}

TEST_F(ChatCommandTest, RefusesFlagsThatDoNotGoTogether) {
  const std::pair<const char*, const char*> cases[] = {
      {"chat", "want --model PATH, or --server ADDR with --tokenizer PATH"},
      {"chat --local",
       "want --model PATH, or --server ADDR with --tokenizer PATH"},
      {"chat --server localhost:1", "--server: wants --tokenizer"},
      {"chat --server localhost:1 --local", "want neither --local nor"},
      {"chat --model x --tokenizer y", "--tokenizer: a model has its own"},
      {"chat --model x --history h --no-history", "without --no-history"},
      {"generate --server localhost:1 --prompt a --chat auto",
       "--chat auto: wants --tokenizer"},
      {"generate --server localhost:1 --prompt a --show-drafters",
       "--show-drafters: wants --tokenizer"},
      {"generate --local --model x --prompt a --show-drafters --json",
       "without --json"},
      {"generate --local --model x --prompt-ids 1 --chat auto",
       "without --prompt-ids"}};
  for (const auto& [arguments, why] : cases) {
    const CommandResult ran = Run(arguments);
    EXPECT_EQ(ran.exit_status, 1) << arguments;
    EXPECT_THAT(ran.err, HasSubstr(why)) << arguments;
  }
}

TEST_F(ChatCommandTest, RunTakesTheModelAsItsArgument) {
  WriteTemplate();
  const std::string flags =
      " --precision fp32 --threads 1 --ignore-eos --max-tokens 8 --mode off "
      "--no-history";
  const CommandResult ran = Run("run '" + model_ + "'" + flags, "ab\n");
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  const CommandResult chat =
      Run("chat --model '" + model_ + "'" + flags, "ab\n");
  EXPECT_THAT(ran.out, Not(IsEmpty()));
  EXPECT_EQ(ran.out, chat.out);
  EXPECT_EQ(Run("run").exit_status, 2);
}

}  // namespace
}  // namespace foretoken
