// ChatAnswer and SpelledControls: tool calls that begin with a special token,
// which the text of an answer omits.
#include "common/text/chat/chat_answer.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/text/chat/model_chat.h"
#include "common/text/hf_tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::testing::SizeIs;

// Bytes, and the special tokens of Mistral's and Llama's calls.
std::shared_ptr<const Tokenizer> TestTokenizer() {
  Json vocabulary = Json::object();
  // The characters that byte-level BPE uses for printable ASCII are themselves;
  // 0x120 stands for the space and 0xC3 for that byte.
  int id = 0;
  for (char c = '!'; c <= '~'; ++c) vocabulary[std::string(1, c)] = id++;
  vocabulary["\u0120"] = id++;
  vocabulary["\u00c3"] = id++;
  vocabulary["\u00a9"] = id++;
  Json file = Json::parse(R"({
    "added_tokens": [
      {"id": 200, "content": "[TOOL_CALLS]", "special": true},
      {"id": 201, "content": "[ARGS]", "special": true},
      {"id": 202, "content": "</s>", "special": true}],
    "normalizer": null, "post_processor": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                      "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "merges": []}})");
  file["model"]["vocab"] = vocabulary;
  auto tokenizer = MakeHfTokenizer(DumpJson(file), {});
  EXPECT_THAT(tokenizer, testing::IsOk());
  return *std::move(tokenizer);
}

// Content and calls of an answer that is delivered `step` tokens at a time,
// its text `late` bytes after its tokens.
std::pair<std::string, std::string> Deliver(const ModelChat& chat,
                                            const std::vector<TokenId>& ids,
                                            size_t step, size_t late,
                                            bool with_tools = true) {
  const ToolNames tools = with_tools ? ToolNames{"f", "g"} : ToolNames();
  ChatAnswer answer(chat, tools, 1);
  std::string content;
  std::string calls;
  const auto add = [&](const AnswerDelta& delta) {
    content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      calls += call.name + call.arguments;
    }
  };
  Detokenizer detokenizer(chat.tokenizer(), Detokenizer::Start::kBehindPrompt);
  std::string waiting;
  for (size_t i = 0; i < ids.size(); i += step) {
    const auto part = absl::MakeConstSpan(ids).subspan(i, step);
    FORETOKEN_EXPECT_OK(detokenizer.Push(part, waiting));
    const size_t now = waiting.size() > late ? waiting.size() - late : 0;
    add(answer.Take(part, waiting.substr(0, now)));
    waiting.erase(0, now);
  }
  detokenizer.Flush(waiting);
  add(answer.Take({}, waiting));
  add(answer.Finish());
  return {content, calls};
}

TEST(ChatAnswerTest, SpecialTokensBeginCallsHoweverTheAnswerIsDelivered) {
  const auto tokenizer = TestTokenizer();
  const auto chat = ModelChat::Create(tokenizer, "{{ '[TOOL_CALLS]' }}");
  FORETOKEN_ASSERT_OK(chat);
  const std::vector<TokenId> ids = tokenizer->Encode(
      "I\u00e9 see. [TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}</s>");
  for (size_t step = 1; step <= ids.size(); ++step) {
    for (size_t late = 0; late < 12; ++late) {
      const auto [content, calls] = Deliver(**chat, ids, step, late);
      EXPECT_EQ(content, "I\u00e9 see.") << step << " " << late;
      EXPECT_EQ(calls, "f{\"a\": 1}g{}") << step << " " << late;
    }
  }
  // Without tools the answer is what the tokenizer decodes.
  const auto [content, calls] =
      Deliver(**chat, ids, 3, 0, /*with_tools=*/false);
  EXPECT_EQ(content, "I\u00e9 see. f{\"a\": 1}g{}");
  EXPECT_EQ(calls, "");
}

TEST(ChatAnswerTest, SpellsControlsThatEndTheText) {
  const auto tokenizer = TestTokenizer();
  const ControlTokens controls =
      FindControls(*tokenizer, ToolCallControls(ToolCallForm::kMistral));
  ASSERT_THAT(controls, SizeIs(2));
  SpelledControls spelled(*tokenizer, controls);
  EXPECT_EQ(spelled.Take({}, ""), "");
  EXPECT_EQ(spelled.Take(tokenizer->Encode("ab"), ""), "");
  EXPECT_EQ(spelled.Take({200}, "a"), "a");
  EXPECT_EQ(spelled.Take({202}, ""), "");
  EXPECT_EQ(spelled.Finish(), "[TOOL_CALLS]");
}

TEST(ChatAnswerTest, IdsThatTheVocabularyLacksHaveNoText) {
  const auto tokenizer = TestTokenizer();
  const ControlTokens controls =
      FindControls(*tokenizer, ToolCallControls(ToolCallForm::kMistral));
  SpelledControls spelled(*tokenizer, controls);
  EXPECT_EQ(spelled.Take({100000, 200}, "x"), "[TOOL_CALLS]x");
}

}  // namespace
}  // namespace foretoken
