// The memory that answers take, against the share that they hold.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/counted_heap.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

class AnswerMemoryTest : public GatewayServiceTest {
 protected:
  // The most that the answer's texts may take: the share without the room for
  // what every exchange has.
  int64_t most_for_texts() const {
    constexpr int64_t kSmall = 16 << 10;  // items, ids, statistics
    ApiRequest nothing;
    nothing.stream = true;
    return most_held_ - GenerationExchange::Bytes(nothing, 1) + kSmall;
  }
};

// The client reads the deltas, and then nothing: the events that repeat the
// output are all queued.
TEST_F(AnswerMemoryTest, AStreamOfResponsesHoldsWhatItKeeps) {
  const std::string text(1000, 'a');
  // Just below a power of two, where the share has least to spare.
  constexpr int kDeltas = 30;
  const auto exchange =
      Post("/v1/responses", R"({"input": "ab", "stream": true})");
  const int64_t peak = testing::HeapPeakOf([&] {
    for (int i = 0; i < kDeltas; ++i) {
      call().Write(text);
      std::string().swap(exchange->response.body);
    }
    call().Finish();
  });
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_GT(exchange->response.body.size(), 4 * kDeltas * text.size());
  EXPECT_GT(peak, static_cast<int64_t>(exchange->response.body.size()));
  EXPECT_LE(peak, most_for_texts());
}

// Nothing is read.
TEST_F(AnswerMemoryTest, AStreamOfResponsesHoldsWhatItRepeats) {
  const std::string description(60000, 'd');
  const auto exchange = Post(
      "/v1/responses",
      absl::StrCat(
          R"({"input": "ab", "stream": true, "tool_choice": "none", "tools":)",
          R"([{"type": "function", "name": "f", "description": ")", description,
          R"("}]})"));
  service_->Stop();  // waits for the thread that read the body
  const int64_t peak = testing::HeapPeakOf([&] {
    call().Write("x");
    call().Finish();
  });
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_GT(exchange->response.body.size(), 3 * description.size());
  // With the copy of the request.
  EXPECT_LE(peak + static_cast<int64_t>(description.size()), most_for_texts());
}

// The body of the answer, its copy in the connection's queue, and what it is
// made of. Before that, the share of the body pays for the reading.
TEST_F(AnswerMemoryTest, TextsAndTokensHoldTheirAnswers) {
  constexpr int kTokens = 20000;
  std::string list = "1";  // a control character, six bytes as JSON
  for (int i = 1; i < kTokens; ++i) list += ",1";
  for (const auto& [path, body] :
       std::vector<std::pair<const char*, std::string>>{
           {"/tokenize",
            absl::StrCat(R"({"prompt": ")", std::string(kTokens, 'a'), "\"}")},
           {"/detokenize", absl::StrCat("{\"tokens\": [", list, "]}")}}) {
    generator_.on_text = [] { testing::g_heap_peak = testing::g_heap.load(); };
    most_held_ = 0;
    Make();
    std::shared_ptr<FakeExchange> exchange;
    const int64_t peak = testing::HeapPeakOf([&] {
      exchange = Post(path, body);
      service_->Stop();  // waits for the thread that reads the body
    });
    EXPECT_EQ(exchange->response.status, 200) << path;
    const auto answer = static_cast<int64_t>(exchange->response.body.size());
    EXPECT_GT(answer, 3 * kTokens) << path;
    constexpr int64_t kSmall = 16 << 10;  // the exchange, its head
    EXPECT_LE(peak + answer, most_held_ + kSmall) << path;
    EXPECT_EQ(memory_.used(), 0) << path;
  }
}

TEST_F(AnswerMemoryTest, AnswersThatCannotBeHeldAreRefused) {
  const auto exchange =
      Post("/tokenize",
           absl::StrCat(R"({"prompt": ")", std::string(100'000, 'a'), "\"}"));
  service_->Stop();
  EXPECT_EQ(exchange->response.status, 400);
  EXPECT_EQ(memory_.used(), 0);
}

// The vectors wait for the last of them; then they are put together.
TEST_F(AnswerMemoryTest, EmbeddingsHoldTheirAnswers) {
  // As JSON a vector is a little longer than a power of two, the size of a
  // string that has grown.
  constexpr int kInputs = 4, kNumbers = 1100;
  generator_.info.embedding_size = kNumbers;
  for (const char* format : {"float", "base64"}) {
    generator_.calls.clear();
    most_held_ = 0;
    Make();
    const auto exchange =
        Post("/v1/embeddings",
             absl::StrCat(R"({"input": ["a", "b", "c", "d"],)",
                          R"("encoding_format": ")", format, "\"}"));
    ASSERT_EQ(generator_.calls.size(), size_t{kInputs});
    GenerationSummary summary;
    summary.embedding.assign(kNumbers, -1.17549435e-38f);
    const int64_t peak = testing::HeapPeakOf([&] {
      for (int i = 0; i < kInputs; ++i) {
        call(i).listener->OnResult(summary);
        call(i).End(absl::OkStatus());
      }
    });
    EXPECT_EQ(exchange->response.status, 200) << format;
    EXPECT_GT(exchange->response.body.size(), size_t{kInputs} * kNumbers * 5);
    EXPECT_LE(peak, most_for_texts()) << format;
  }
}

}  // namespace
}  // namespace foretoken::gateway
