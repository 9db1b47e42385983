// The memory that a conversation takes until it is token ids, against the heap.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/text/chat/model_chat.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/counted_heap.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken {
namespace {

// What does not grow with the conversation.
constexpr int64_t kSlack = 64 << 10;

// Counts are beyond powers of two, where lists and indexes that grow have most
// to spare.
std::string Repeated(int count, const std::string& item) {
  std::string list = item;
  for (int i = 1; i < count; ++i) absl::StrAppend(&list, ",", item);
  return list;
}

// Conversations that are much larger as values than as text.
std::vector<std::pair<std::string, ChatRequest>> Conversations() {
  const std::string one = R"([{"role": "user", "content": "a"}])";
  std::string fields = R"([{"role": "user", "content": "")";
  for (int i = 0; i < 28700; ++i) absl::StrAppend(&fields, ",\"", i, "\":1");
  const std::string call = absl::StrCat(
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f",)",
      R"("arguments": "{\"a\": [)", Repeated(65540, "[]"), R"(]}"}}]}])");
  const auto messages = [](std::string text) {
    ChatRequest request;
    request.messages = std::move(text);
    return request;
  };
  const auto variables = [&](const std::string& item) {
    ChatRequest request = messages(one);
    request.variables = absl::StrCat("{\"x\": [", Repeated(65540, item), "]}");
    return request;
  };
  return {
      {"messages",
       messages(absl::StrCat(
           "[", Repeated(16390, R"({"role":"user","content":"","b":{}})"),
           "]"))},
      {"parts", messages(absl::StrCat(
                    R"([{"role": "user", "content": [)",
                    Repeated(16390, R"({"type":"text","text":""})"), "]}]"))},
      {"fields", messages(fields + "}]")},
      {"arguments", messages(call)},
      {"numbers", variables("1")},
      {"texts", variables("\"\"")},
      {"lists", variables("[]")},
      {"objects", variables("{}")},
      {"entries", variables(R"({"":1})")},
      {"text", messages(absl::StrCat(R"([{"role": "user", "content": ")",
                                     std::string(100000, 'a'), "\"}]"))}};
}

class ChatMemoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelChat> Chat(absl::string_view source) {
    const testing::TempDir dir;
    return ModelChat::Create(
               Tokenizer::LoadShared(
                   dir.Write("tokenizer.json", testing::TinyTokenizerJson()))
                   .value(),
               source)
        .value();
  }
};

TEST_F(ChatMemoryTest, EncodingTakesNoMoreThanItReserves) {
  for (const char* source :
       {"{{ messages[0].content }}",
        // Copies of copies.
        "{% set n = namespace(x='') %}{% for m in messages %}"
        "{% set n.x = n.x ~ m.content ~ 'b' %}{% endfor %}{{ n.x }}",
        "{{ messages | tojson }}"}) {
    const auto chat = Chat(source);
    for (const auto& [name, request] : Conversations()) {
      int64_t most = 0;
      absl::Status status;
      const int64_t peak = testing::HeapPeakOf([&] {
        status = chat->Encode(request, absl::UnixEpoch(),
                              [&](int64_t bytes) {
                                most = std::max(most, bytes);
                                return absl::OkStatus();
                              })
                     .status();
      });
      EXPECT_TRUE(status.ok()) << name << " by " << source << ": " << status;
      EXPECT_LE(peak, most + kSlack) << name << " by " << source;
    }
  }
}

TEST_F(ChatMemoryTest, WithoutMemoryTheErrorIsThatOfTheOneAsked) {
  const auto chat = Chat(
      "{% set n = namespace(x='') %}{% for m in messages %}"
      "{% set n.x = n.x ~ m.content ~ 'b' %}{% endfor %}{{ n.x }}");
  ChatRequest request;
  request.messages = absl::StrCat(
      "[", Repeated(1000, R"({"role":"user","content":"aaaaaaaa"})"), "]");
  std::vector<int64_t> asked;
  const auto grant = [&](size_t times) {
    asked.clear();
    return chat
        ->Encode(request, absl::UnixEpoch(),
                 [&](int64_t bytes) {
                   asked.push_back(bytes);
                   return asked.size() > times
                              ? absl::ResourceExhaustedError("full")
                              : absl::OkStatus();
                 })
        .status();
  };
  // For the values, while rendering, and for the encoding.
  ASSERT_TRUE(grant(100).ok());
  const size_t times = asked.size();
  ASSERT_GT(times, 3u);
  for (size_t i = 0; i < times; ++i) {
    EXPECT_EQ(grant(i), absl::ResourceExhaustedError("full")) << i;
    EXPECT_EQ(asked.size(), i + 1);  // nothing goes on
  }
}

}  // namespace
}  // namespace foretoken
