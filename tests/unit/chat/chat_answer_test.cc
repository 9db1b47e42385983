// ChatAnswer and SpelledControls: tool calls that begin with a special token,
// which the text of an answer omits.
#include "common/text/chat/chat_answer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/json.h"
#include "common/text/chat/model_chat.h"
#include "common/text/hf_tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::testing::SizeIs;

// Bytes, and the special tokens of Mistral's calls and thinking.
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
      {"id": 202, "content": "</s>", "special": true},
      {"id": 203, "content": "[THINK]", "special": true},
      {"id": 204, "content": "[/THINK]", "special": true},
      {"id": 205, "content": ">  so", "special": false}],
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

struct Delivered {
  std::string content, calls, reasoning;
  std::string in_order;  // content and calls
  int64_t thinking_tokens = 0;
};

// An answer that is delivered `step` tokens at a time, its text `late` bytes
// after its tokens.
Delivered Deliver(const ModelChat& chat, const std::vector<TokenId>& ids,
                  size_t step, size_t late, bool with_tools = true,
                  const ChatAnswerOptions& options = {}) {
  const ToolNames tools = with_tools ? ToolNames{"f", "g"} : ToolNames();
  ChatAnswer answer(chat, tools, 1, options);
  Delivered got;
  const auto add = [&](const AnswerDelta& delta) {
    got.content += delta.content;
    got.reasoning += delta.reasoning;
    delta.InOrder(
        [&](absl::string_view text) { absl::StrAppend(&got.in_order, text); },
        [&](const ToolCallDelta& call) {
          got.calls += call.name + call.arguments;
          got.in_order += call.name + call.arguments;
        });
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
  got.thinking_tokens = answer.thinking_tokens();
  return got;
}

TEST(ChatAnswerTest, SpecialTokensBeginCallsHoweverTheAnswerIsDelivered) {
  const auto tokenizer = TestTokenizer();
  const auto chat = ModelChat::Create(tokenizer, "{{ '[TOOL_CALLS]' }}");
  FORETOKEN_ASSERT_OK(chat);
  const std::vector<TokenId> ids = tokenizer->Encode(
      "I\u00e9 see. [TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}</s>");
  for (size_t step = 1; step <= ids.size(); ++step) {
    for (size_t late = 0; late < 12; ++late) {
      const Delivered got = Deliver(**chat, ids, step, late);
      EXPECT_EQ(got.content, "I\u00e9 see.") << step << " " << late;
      EXPECT_EQ(got.calls, "f{\"a\": 1}g{}") << step << " " << late;
      EXPECT_EQ(got.in_order, got.content + got.calls) << step << " " << late;
      EXPECT_EQ(got.thinking_tokens, 0);
    }
  }
  // Without tools the answer is what the tokenizer decodes.
  const Delivered got = Deliver(**chat, ids, 3, 0, /*with_tools=*/false);
  EXPECT_EQ(got.content, "I\u00e9 see. f{\"a\": 1}g{}");
  EXPECT_EQ(got.calls, "");
}

constexpr char kThinks[] =
    "{{ '[TOOL_CALLS]' ~ '[ARGS]' ~ '[THINK]' ~ '[/THINK]' }}";

TEST(ChatAnswerTest, ThinkingBetweenSpecialTokensHasNoCalls) {
  const auto tokenizer = TestTokenizer();
  const auto chat = ModelChat::Create(tokenizer, kThinks);
  FORETOKEN_ASSERT_OK(chat);
  const std::vector<TokenId> ids = tokenizer->Encode(
      "[THINK] I\u00e9 [TOOL_CALLS]f[ARGS]{}[/THINK] so "
      "[TOOL_CALLS]g[ARGS]{}</s>");
  const auto closing = std::find(ids.begin(), ids.end(), 204);
  ASSERT_NE(closing, ids.end());
  for (size_t step = 1; step <= ids.size(); ++step) {
    for (size_t late = 0; late < 12; ++late) {
      const Delivered got = Deliver(**chat, ids, step, late);
      EXPECT_EQ(got.reasoning, "I\u00e9 [TOOL_CALLS]f[ARGS]{}");
      EXPECT_EQ(got.content, "so") << step << " " << late;
      EXPECT_EQ(got.calls, "g{}") << step << " " << late;
      EXPECT_EQ(got.thinking_tokens, closing - ids.begin() + 1)
          << step << " " << late;
    }
  }
}

TEST(ChatAnswerTest, VerbatimThinkingIsContentWithItsTags) {
  const auto tokenizer = TestTokenizer();
  const auto chat = ModelChat::Create(tokenizer, kThinks);
  FORETOKEN_ASSERT_OK(chat);
  ChatAnswerOptions options;
  options.thinking.verbatim = true;
  const std::vector<TokenId> ids = tokenizer->Encode(
      " [THINK] a [TOOL_CALLS]f[ARGS]{}[/THINK] so [TOOL_CALLS]g[ARGS]{}</s>");
  for (size_t step = 1; step <= ids.size(); ++step) {
    const Delivered got = Deliver(**chat, ids, step, 0, true, options);
    EXPECT_EQ(got.reasoning, "");
    EXPECT_EQ(got.content, " [THINK] a [TOOL_CALLS]f[ARGS]{}[/THINK] so");
    EXPECT_EQ(got.calls, "g{}");
    EXPECT_EQ(got.in_order, got.content + got.calls) << step;
    EXPECT_GT(got.thinking_tokens, 0);
    const Delivered text =
        Deliver(**chat, ids, step, 0, /*with_tools=*/false, options);
    EXPECT_EQ(text.content, " [THINK] a f{}[/THINK] so g{}");
  }
}

TEST(ChatAnswerTest, WhereNoThinkingIsReadTheTagsAreContent) {
  const auto tokenizer = TestTokenizer();
  const auto chat = ModelChat::Create(tokenizer, "{{ '</think>' }}");
  FORETOKEN_ASSERT_OK(chat);
  ChatAnswerOptions options;
  options.reads_thinking = false;
  const std::vector<TokenId> ids = tokenizer->Encode(" <think>a</think> b</s>");
  for (size_t step = 1; step <= ids.size(); ++step) {
    const Delivered got = Deliver(**chat, ids, step, 0, false, options);
    EXPECT_EQ(got.reasoning, "");
    EXPECT_EQ(got.content, " <think>a</think> b");
    EXPECT_EQ(got.thinking_tokens, 0);
  }
}

TEST(ChatAnswerTest, TokensThatBeginBeforeTheEndOfTheThinkingCount) {
  const auto tokenizer = TestTokenizer();
  const auto chat = ModelChat::Create(tokenizer, "{{ '</think>' }}");
  FORETOKEN_ASSERT_OK(chat);
  const auto count = [&](const std::string& text, bool opened = false) {
    ChatAnswerOptions options;
    options.thinking.opened = opened;
    const std::vector<TokenId> ids = tokenizer->Encode(text);
    const int64_t tokens =
        Deliver(**chat, ids, 1, 0, false, options).thinking_tokens;
    for (size_t step = 1; step < 30; ++step) {
      for (size_t late = 0; late < 9; ++late) {
        EXPECT_EQ(
            Deliver(**chat, ids, step, late, false, options).thinking_tokens,
            tokens)
            << text << " " << step << " " << late;
      }
    }
    return tokens;
  };
  EXPECT_EQ(count("ab</s>"), 0);
  EXPECT_EQ(count("<think>\u00e9b</think> c</s>"), 7 + 3 + 8);
  // A token with the end of the tag and the beginning of the answer.
  EXPECT_EQ(count("<think>ab</think>  so c"), 7 + 2 + 8);
  // Never closed: the end token as well.
  EXPECT_EQ(count("<think>ab</s>"), 7 + 2 + 1);
  EXPECT_EQ(count("ab</think>c", /*opened=*/true), 2 + 8);
  EXPECT_EQ(count("</s>", /*opened=*/true), 1);
}

TEST(ChatAnswerTest, TheTagThatEndsAnAnswerCounts) {
  const auto tokenizer = TestTokenizer();
  const auto chat = ModelChat::Create(tokenizer, kThinks);
  FORETOKEN_ASSERT_OK(chat);
  const std::vector<TokenId> ids = tokenizer->Encode("[THINK]ab[/THINK]</s>");
  for (size_t late = 0; late < 3; ++late) {
    const Delivered got = Deliver(**chat, ids, 2, late);
    EXPECT_EQ(got.reasoning, "ab");
    EXPECT_EQ(got.content, "");
    EXPECT_EQ(got.thinking_tokens, 4);
  }
}

TEST(ChatAnswerTest, TagsThatAreSpecialTokensOutsideTheThinkingAreDropped) {
  const auto tokenizer = TestTokenizer();
  const auto chat = ModelChat::Create(tokenizer, kThinks);
  FORETOKEN_ASSERT_OK(chat);
  struct Case {
    std::string answer, reasoning, content;
    int64_t thinking_tokens = 0;
    bool opened = false;
  };
  const Case cases[] = {
      {"[THINK]a[/THINK]b[/THINK]c[THINK]d[/THINK] e", "a", "bcd e", 3},
      {"a[/THINK]b[THINK]c", "", "abc", 0},
      {"a[/THINK][THINK]b[/THINK]c", "a", "bc", 2, /*opened=*/true},
      // The thinking does not begin behind a stray end.
      {" [/THINK]a[THINK]b", "", " ab", 0},
      {"[[THINK]a[/THINK]b", "", "[ab", 0},
      {"[/THINK]", "", "", 0},
      // The reasoning says all of it.
      {"[THINK]a[THINK]b[/THINK]c", "a[THINK]b", "c", 5}};
  for (const Case& test : cases) {
    ChatAnswerOptions options;
    options.thinking.opened = test.opened;
    const std::vector<TokenId> ids = tokenizer->Encode(test.answer + "</s>");
    for (size_t step = 1; step <= ids.size(); ++step) {
      for (size_t late = 0; late < 4; ++late) {
        for (const bool with_tools : {false, true}) {
          const Delivered got =
              Deliver(**chat, ids, step, late, with_tools, options);
          EXPECT_EQ(got.reasoning, test.reasoning) << test.answer;
          EXPECT_EQ(got.content, test.content) << test.answer << " " << step;
          EXPECT_EQ(got.thinking_tokens, test.thinking_tokens) << test.answer;
        }
      }
    }
    // As the tokenizer decodes it, where no thinking is read.
    options = {};
    options.reads_thinking = false;
    for (const bool with_tools : {false, true}) {
      const Delivered got = Deliver(**chat, ids, 2, 0, with_tools, options);
      EXPECT_EQ(got.reasoning, "");
      EXPECT_EQ(got.content,
                absl::StrReplaceAll(test.answer,
                                    {{"[THINK]", ""}, {"[/THINK]", ""}}));
    }
  }
}

// The text that comes out.
std::string Spell(SpelledControls& spelled, const std::vector<TokenId>& ids,
                  absl::string_view text) {
  std::string out;
  spelled.Take(ids, text, [&](absl::string_view piece, bool /*is_control*/) {
    out.append(piece.data(), piece.size());
  });
  return out;
}

TEST(ChatAnswerTest, SpellsControlsThatEndTheText) {
  const auto tokenizer = TestTokenizer();
  const ControlTokens controls =
      FindControls(*tokenizer, ToolCallControls(ToolCallForm::kMistral));
  ASSERT_THAT(controls, SizeIs(2));
  SpelledControls spelled(*tokenizer, controls);
  EXPECT_EQ(Spell(spelled, {}, ""), "");
  EXPECT_EQ(Spell(spelled, tokenizer->Encode("ab"), ""), "");
  EXPECT_EQ(Spell(spelled, {200}, "a"), "a");
  EXPECT_EQ(Spell(spelled, {202}, ""), "");
  std::string last;
  spelled.Finish([&](absl::string_view text, bool is_control) {
    EXPECT_TRUE(is_control);
    last.append(text.data(), text.size());
  });
  EXPECT_EQ(last, "[TOOL_CALLS]");
}

TEST(ChatAnswerTest, IdsThatTheVocabularyLacksHaveNoText) {
  const auto tokenizer = TestTokenizer();
  const ControlTokens controls =
      FindControls(*tokenizer, ToolCallControls(ToolCallForm::kMistral));
  SpelledControls spelled(*tokenizer, controls);
  EXPECT_EQ(Spell(spelled, {100000, 200}, "x"), "[TOOL_CALLS]x");
}

}  // namespace
}  // namespace foretoken
