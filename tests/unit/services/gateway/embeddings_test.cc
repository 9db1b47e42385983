// POST /v1/embeddings, from its body to its answer.
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/retry_after.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/embeddings_request.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

EmbeddingsRequest Read(const std::string& fields) {
  auto read = ReadEmbeddingsRequest(absl::StrCat("{", fields, "}"));
  EXPECT_THAT(read, IsOk()) << fields;
  return read.ok() ? *std::move(read) : EmbeddingsRequest();
}
ApiError ErrorOf(const std::string& fields) {
  const auto read = ReadEmbeddingsRequest(absl::StrCat("{", fields, "}"));
  EXPECT_FALSE(read.ok()) << fields;
  return read.ok() ? ApiError() : ToApiError(read.status());
}

TEST(EmbeddingsRequestTest, InputsAreTextsOrIds) {
  EXPECT_THAT(Read(R"("input": "a")").request.prompts,
              ElementsAre(Prompt("a")));
  EXPECT_THAT(Read(R"("input": ["a", "b"])").request.prompts,
              ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_THAT(Read(R"("input": [1, 2])").request.prompts,
              ElementsAre(Prompt(std::vector<TokenId>{1, 2})));
  EXPECT_THAT(Read(R"("input": [[1, 2], [3]])").request.prompts,
              ElementsAre(Prompt(std::vector<TokenId>{1, 2}),
                          Prompt(std::vector<TokenId>{3})));
}

TEST(EmbeddingsRequestTest, DefaultsAndFieldsArrive) {
  const EmbeddingsRequest plain = Read(R"("input": "a")");
  EXPECT_EQ(plain.request.generation.pooling, Pooling::kModel);
  EXPECT_FALSE(plain.request.base64);
  EXPECT_FALSE(plain.dimensions.has_value());
  EXPECT_EQ(plain.request.max_tokens, 0);
  EXPECT_THAT(plain.request.ignored_fields, IsEmpty());
  const EmbeddingsRequest all = Read(
      R"("input": "a", "model": "m", "encoding_format": "base64",
         "dimensions": 64, "user": "u", "pooling": "last")");
  EXPECT_EQ(all.request.model, "m");
  EXPECT_TRUE(all.request.base64);
  EXPECT_EQ(all.dimensions, 64);
  EXPECT_EQ(all.request.generation.pooling, Pooling::kLast);
  EXPECT_THAT(all.request.ignored_fields, ElementsAre("user"));
  EXPECT_EQ(
      Read(R"("input": "a", "pooling": "mean")").request.generation.pooling,
      Pooling::kMean);
}

TEST(EmbeddingsRequestTest, ErrorsNameTheField) {
  EXPECT_EQ(ErrorOf("").param, "input");
  EXPECT_EQ(ErrorOf(R"("input": "")").param, "input");
  EXPECT_EQ(ErrorOf(R"("input": [])").param, "input");
  EXPECT_EQ(ErrorOf(R"("input": 3)").param, "input");
  EXPECT_EQ(ErrorOf(R"("input": [1, "a"])").param, "input");
  EXPECT_EQ(ErrorOf(R"("input": [-1])").param, "input");
  EXPECT_EQ(ErrorOf(R"("input": ["a", ""])").param, "input[1]");
  EXPECT_EQ(ErrorOf(R"("input": [[1], []])").param, "input[1]");
  const std::string input = R"("input": "a", )";
  EXPECT_EQ(ErrorOf(input + R"("pooling": "cls")").param, "pooling");
  EXPECT_EQ(ErrorOf(input + R"("encoding_format": "int8")").param,
            "encoding_format");
  EXPECT_EQ(ErrorOf(input + R"("dimensions": 0)").param, "dimensions");
  EXPECT_EQ(ErrorOf(input + R"("temperature": 1)").param, "temperature");
}

TEST(EmbeddingsRequestTest, InputsAreBounded) {
  std::string inputs = "\"a\"";
  for (size_t i = 1; i < kMaxEmbeddingInputs; ++i) inputs += ",\"a\"";
  EXPECT_THAT(Read(absl::StrCat("\"input\": [", inputs, "]")).request.prompts,
              SizeIs(kMaxEmbeddingInputs));
  EXPECT_EQ(ErrorOf(absl::StrCat("\"input\": [", inputs, ",\"a\"]")).code,
            "array_above_max_length");
  const std::string half(kMaxEmbeddingBytes / 2, 'a');
  EXPECT_THAT(Read(absl::StrCat("\"input\": [\"", half, "\",\"", half, "\"]"))
                  .request.prompts,
              SizeIs(2));
  EXPECT_THAT(
      ErrorOf(absl::StrCat("\"input\": [\"", half, "\",\"", half, "a\"]"))
          .message,
      HasSubstr("bytes together"));
  std::string ids = "1";
  for (size_t i = 1; i < kMaxEmbeddingTokens; ++i) ids += ",1";
  EXPECT_THAT(Read(absl::StrCat("\"input\": [", ids, "]")).request.prompts,
              SizeIs(1));
  EXPECT_THAT(ErrorOf(absl::StrCat("\"input\": [[", ids, "],[1]]")).message,
              HasSubstr("token ids together"));
}

class EmbeddingsTest : public GatewayServiceTest {
 protected:
  EmbeddingsTest() {
    generator_.info.embedding_size = 3;
    generator_.info.numerics_fingerprint = "numerics";
  }
  std::shared_ptr<FakeExchange> Embed(const std::string& fields,
                                      HttpHeaders headers = {}) {
    return Post("/v1/embeddings", absl::StrCat("{", fields, "}"),
                std::move(headers));
  }
  void Answer(size_t i, std::vector<float> embedding, int64_t tokens) {
    GenerationSummary summary;
    summary.finish = FinishReason::kStop;
    summary.prompt_tokens = tokens;
    summary.embedding = std::move(embedding);
    call(i).listener->OnResult(summary);
    call(i).End(absl::OkStatus());
  }
  // Refuses request `i` as a busy server does.
  void Refuse(size_t i, absl::Duration hint) {
    call(i).End(WithRetryAfter(absl::ResourceExhaustedError("busy"), hint));
  }
  // Waits until request `i` has come.
  void AwaitCall(size_t i) {
    ASSERT_TRUE(Eventually([&] { return generator_.requests().size() > i; }));
  }
};

const HttpHeaders& Key() {
  static const auto* const key =
      new HttpHeaders{{"Authorization", "Bearer right"}};
  return *key;
}
std::string Letters(int count) {
  std::string inputs = R"("input": ["a")";
  for (int i = 1; i < count; ++i) inputs += R"(,"a")";
  return inputs + "]";
}

TEST_F(EmbeddingsTest, AnswersInTheOrderOfTheInputs) {
  const auto exchange = Embed(R"("input": ["a", "b"], "user": "u")");
  ASSERT_THAT(generator_.calls, SizeIs(2));
  const GenerationRequest& request = call(1).request;
  EXPECT_EQ(request.text, "b");
  EXPECT_EQ(request.pooling, Pooling::kModel);
  EXPECT_EQ(request.numerics_fingerprint, "numerics");
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_EQ(request.prefix_scope, "");
  Answer(1, {0, -1, 0}, 4);
  EXPECT_EQ(exchange->ends, 0);
  Answer(0, {0.6f, 0, 0.8f}, 3);
  EXPECT_EQ(exchange->response.status, 200);
  EXPECT_EQ(exchange->response.body,
            R"({"object":"list","data":[)"
            R"({"object":"embedding","index":0,"embedding":[0.6,0,0.8]},)"
            R"({"object":"embedding","index":1,"embedding":[0,-1,0]}],)"
            R"("model":"demo","usage":{"prompt_tokens":7,"total_tokens":7}})");
}

TEST_F(EmbeddingsTest, Base64IsLittleEndianFloats) {
  const auto exchange =
      Embed(R"("input": [5, 6], "encoding_format": "base64")");
  EXPECT_THAT(call().request.prompt, ElementsAre(5, 6));
  const std::vector<float> numbers = {0.25f, -1e-30f, 0.96824584f};
  Answer(0, numbers, 2);
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(
      exchange->Body()["data"][0]["embedding"].get<std::string>(), &bytes));
  ASSERT_EQ(bytes.size(), 12u);
  std::vector<float> read(3);
  std::memcpy(read.data(), bytes.data(), bytes.size());
  EXPECT_EQ(read, numbers);
}

TEST_F(EmbeddingsTest, DimensionsAreThoseOfTheModel) {
  EXPECT_EQ(Embed(R"("input": "a", "dimensions": 2)")->Body()["error"]["param"],
            "dimensions");
  EXPECT_THAT(generator_.calls, IsEmpty());
  Embed(R"("input": "a", "dimensions": 3)");
  EXPECT_THAT(generator_.calls, SizeIs(1));
}

TEST_F(EmbeddingsTest, AServerWithoutEmbeddingsSaysSo) {
  generator_.info.embedding_size = 0;
  EXPECT_EQ(Embed(R"("input": "a")")->response.status, 400);
  EXPECT_THAT(generator_.calls, IsEmpty());
}

TEST_F(EmbeddingsTest, ErrorsOfOneInputNameIt) {
  const absl::Status large = absl::InvalidArgumentError(
      "prompt: it has 200 tokens: this model's maximum context length is 100 "
      "tokens");
  auto exchange = Embed(R"("input": ["a", "b"])");
  call(1).End(large);
  EXPECT_EQ(exchange->response.status, 400);
  Json error = exchange->Body()["error"];
  EXPECT_EQ(error["param"], "input[1]");
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(call(0).cancelled, 1);
  call(0).End(absl::CancelledError("cancelled"));
  exchange = Embed(R"("input": "a")");
  call(2).End(large);
  EXPECT_EQ(exchange->Body()["error"]["param"], "input");
  exchange = Embed(R"("input": "a")");
  call(3).End(absl::InvalidArgumentError("pooling: want mean or last"));
  EXPECT_EQ(exchange->Body()["error"]["param"], "pooling");
  exchange = Embed(R"("input": ["a", "b"])");
  call(5).End(absl::InvalidArgumentError("500 tokens are more than there is"));
  EXPECT_EQ(exchange->Body()["error"]["param"], "input[1]");
  call(4).End(absl::CancelledError("cancelled"));
}

// The client tries again, with the model that is served then.
TEST_F(EmbeddingsTest, AReplacedModelIsTemporary) {
  const auto exchange = Embed(R"("input": "a")");
  call().End(absl::FailedPreconditionError(
      "numerics_fingerprint: the active model has another, x"));
  EXPECT_EQ(exchange->response.status, 503);
  EXPECT_THAT(observer_.statuses, ElementsAre(503));
}

TEST_F(EmbeddingsTest, ARefusedInputIsSentAgainAfterItsHint) {
  const auto exchange = Embed(R"("input": ["a", "b"])");
  Answer(0, {1, 0, 0}, 1);
  Refuse(1, absl::Milliseconds(1));
  EXPECT_EQ(exchange->ends, 0);
  AwaitCall(2);
  EXPECT_EQ(call(2).request.text, "b");
  call(2).End(WithRetryAfter(absl::UnavailableError("no verifier"),
                             absl::Milliseconds(1)));
  AwaitCall(3);
  Answer(3, {0, 1, 0}, 1);
  EXPECT_EQ(exchange->response.status, 200);
  EXPECT_EQ(exchange->Body()["data"][0]["embedding"], Json({1, 0, 0}));
  EXPECT_EQ(exchange->Body()["data"][1]["embedding"], Json({0, 1, 0}));
}

TEST_F(EmbeddingsTest, OnlyATemporaryRefusalIsWaitedFor) {
  GatewayOptions options;
  options.max_request_time = absl::Seconds(30);
  Make(options);
  // Without a hint, after the deadline, after more than any quota needs.
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("busy"),
        WithRetryAfter(absl::UnavailableError("busy"), absl::Seconds(31)),
        WithRetryAfter(absl::InternalError("busy"), absl::Milliseconds(1))}) {
    const auto exchange = Embed(R"("input": "a")");
    generator_.calls.back()->End(status);
    EXPECT_EQ(exchange->ends, 1) << status;
    EXPECT_NE(exchange->response.status, 200) << status;
  }
  Make();
  const auto exchange = Embed(R"("input": "a")");
  Refuse(generator_.calls.size() - 1, absl::Seconds(61));
  EXPECT_EQ(exchange->response.status, 429);
  EXPECT_EQ(exchange->Header("Retry-After"), "61");
}

TEST_F(EmbeddingsTest, AnInputThatIsAlwaysRefusedIsGivenUp) {
  const auto exchange = Embed(R"("input": "a")");
  for (size_t i = 0; i < GenerationExchange::kMaxWaits; ++i) {
    Refuse(i, absl::Milliseconds(1));
    EXPECT_EQ(exchange->ends, 0);
    AwaitCall(i + 1);
  }
  Refuse(GenerationExchange::kMaxWaits, absl::Milliseconds(1));
  EXPECT_EQ(exchange->response.status, 429);
}

TEST_F(EmbeddingsTest, AServerThatStopsWaitsForNoHint) {
  const auto exchange = Embed(R"("input": "a")");
  Refuse(0, absl::Minutes(1));
  service_->Stop();
  ASSERT_THAT(generator_.calls, SizeIs(2));
  Refuse(1, absl::Minutes(1));
  EXPECT_EQ(exchange->response.status, 429);
}

TEST_F(EmbeddingsTest, FewerInputsAreUnderWayThanTheCallerMayRun) {
  Embed(Letters(40));
  EXPECT_THAT(generator_.calls, SizeIs(8));
  Make({}, /*with_keys=*/true);
  caller_.requests_per_minute = 0;
  caller_.max_requests = 4;
  Embed(Letters(40), Key());
  EXPECT_THAT(generator_.calls, SizeIs(8 + 3));
  caller_.max_requests = 1000;
  Embed(Letters(40), Key());
  EXPECT_THAT(generator_.calls, SizeIs(8 + 3 + 32));
}

TEST_F(EmbeddingsTest, ABatchAboveAMinutesTokensIsRefused) {
  Make({}, /*with_keys=*/true);
  caller_.tokens_per_minute = 4;
  // As the orchestrator counts: four bytes of text, or an id, are a token.
  const auto exchange =
      Embed(R"("input": ["12345678", "123456789ABC"])", Key());
  EXPECT_EQ(exchange->response.status, 400);
  EXPECT_EQ(exchange->Body()["error"]["param"], "input");
  EXPECT_EQ(Embed(R"("input": [[1, 2], [3, 4, 5]])", Key())->response.status,
            400);
  EXPECT_THAT(generator_.calls, IsEmpty());
  Embed(R"("input": ["12345678", "12345678abc"])", Key());
  EXPECT_THAT(generator_.calls, SizeIs(2));
  // A single input may use up the whole quota, and more.
  Embed(R"("input": [1, 2, 3, 4, 5])", Key());
  EXPECT_THAT(generator_.calls, SizeIs(3));
}

TEST_F(EmbeddingsTest, EveryInputIsARequestOfItsCaller) {
  Make({}, /*with_keys=*/true);
  EXPECT_EQ(Embed(R"("input": "a")")->response.status, 401);
  const Json error = Embed(Letters(4), Key())->Body()["error"];
  EXPECT_EQ(error["param"], "input");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("4 inputs are"));
  EXPECT_THAT(generator_.calls, IsEmpty());
  Embed(R"("input": ["a", "b", "c"])", Key());
  ASSERT_THAT(generator_.calls, SizeIs(3));
  EXPECT_EQ(call().request.caller.name, "alice");
}

TEST_F(EmbeddingsTest, AnAnswerThatFindsNoMemoryIsRefused) {
  generator_.info.embedding_size = 1 << 16;
  const auto exchange = Embed(R"("input": "a")");
  EXPECT_NE(exchange->response.status, 200);
  EXPECT_EQ(exchange->ends, 1);
  EXPECT_THAT(generator_.calls, IsEmpty());
}

}  // namespace
}  // namespace foretoken::gateway
