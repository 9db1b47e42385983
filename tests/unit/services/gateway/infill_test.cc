// POST /infill, from its body to its answer.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/infill_request.h"
#include "tests/support/ascii_tokenizer.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/gateway/service_fixture.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kEmpty[] = R"("input_prefix": "", "input_suffix": "")";

InfillRequest Read(const std::string& fields) {
  auto read = ReadInfillRequest(absl::StrCat("{", fields, "}"));
  EXPECT_THAT(read, IsOk()) << fields;
  return read.ok() ? *std::move(read) : InfillRequest();
}
ApiError ErrorOf(const std::string& fields) {
  const auto read = ReadInfillRequest(absl::StrCat("{", fields, "}"));
  EXPECT_FALSE(read.ok()) << fields;
  return read.ok() ? ApiError() : ToApiError(read.status());
}
std::string Fault(const std::string& field) {
  return ErrorOf(absl::StrCat(kEmpty, ", ", field)).param;
}

TEST(InfillRequestTest, DefaultsAreThoseOfLlamaCpp) {
  const InfillRequest plain = Read(kEmpty);
  const SamplingParams& sampling = plain.request.generation.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.8f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.95f);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.05f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.0f);
  EXPECT_FALSE(plain.request.max_tokens.has_value());
  EXPECT_FALSE(plain.request.generation.has_seed);
}

TEST(InfillRequestTest, FieldsArrive) {
  const InfillRequest read = Read(R"("input_prefix": "a", "input_suffix": "b",
      "prompt": "c", "input_extra": [{"filename": "f", "text": "d", "time": 3},
      {"text": "e"}], "n_predict": 7, "temperature": 0, "top_k": 2,
      "top_p": 0.5, "min_p": 0, "repeat_penalty": 1.1, "repeat_last_n": -1,
      "seed": 4, "stop": ["x"], "stream": true, "cache_scope": "s")");
  EXPECT_EQ(read.input.prefix, "ac");
  EXPECT_EQ(read.input.suffix, "b");
  ASSERT_THAT(read.input.extra, SizeIs(2));
  EXPECT_EQ(read.input.extra[0].name, "f");
  EXPECT_EQ(read.input.extra[0].text, "d");
  EXPECT_EQ(read.input.extra[1].name, "tmp");
  const GenerationRequest& generation = read.request.generation;
  EXPECT_EQ(read.request.max_tokens, 7);
  EXPECT_FLOAT_EQ(generation.sampling.temperature, 0.0f);
  EXPECT_EQ(generation.sampling.top_k, 2);
  EXPECT_FLOAT_EQ(generation.sampling.min_p, 0.0f);
  EXPECT_FLOAT_EQ(generation.sampling.repetition_penalty, 1.1f);
  EXPECT_TRUE(generation.has_seed);
  EXPECT_EQ(generation.sampling.seed, 4u);
  EXPECT_THAT(generation.stop_strings, ElementsAre("x"));
  EXPECT_EQ(generation.cache_scope, "s");
  EXPECT_TRUE(read.request.stream);
  // A seed and a limit of llama.cpp's that are none.
  const InfillRequest free =
      Read(absl::StrCat(kEmpty, R"(, "seed": -1, "n_predict": -1)"));
  EXPECT_FALSE(free.request.generation.has_seed);
  EXPECT_FALSE(free.request.max_tokens.has_value());
}

TEST(InfillRequestTest, SettingsThatAreOffAreTaken) {
  Read(absl::StrCat(kEmpty, R"(, "cache_prompt": true, "id_slot": -1,
      "n_keep": 0, "n_cache_reuse": 256, "dynatemp_range": 0.0, "typical_p": 1,
      "mirostat": 0, "mirostat_tau": 5.0, "dry_multiplier": 0.0,
      "dry_sequence_breakers": ["x"], "xtc_probability": 0, "n_probs": 0,
      "n_indent": 0, "min_keep": 0, "t_max_predict_ms": 0, "lora": [],
      "response_fields": [], "post_sampling_probs": false, "samplers": null,
      "repeat_last_n": 64, "timings_per_token": false)"));
}

TEST(InfillRequestTest, WhatEditorsSendIsTaken) {
  // What llama.vim sends for a completion, and to warm up.
  const InfillRequest vim = Read(absl::StrCat(kEmpty, R"(, "input_extra": [],
      "prompt": "a", "n_predict": 128, "stop": [], "n_indent": 4, "top_k": 40,
      "top_p": 0.9, "stream": false, "samplers": ["top_k", "top_p", "infill"],
      "cache_prompt": true, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000,
      "response_fields": ["content", "timings/prompt_n"])"));
  EXPECT_EQ(vim.request.max_tokens, 128);
  EXPECT_FALSE(vim.request.prompt_only);
  EXPECT_THAT(
      vim.request.ignored_fields,
      ::testing::UnorderedElementsAre("n_indent", "samplers", "t_max_prompt_ms",
                                      "t_max_predict_ms", "response_fields"));
  const InfillRequest warm = Read(absl::StrCat(kEmpty, R"(, "n_predict": 0,
      "temperature": 0.0, "samplers": [], "t_max_prompt_ms": 1,
      "response_fields": [""])"));
  EXPECT_TRUE(warm.request.prompt_only);
  EXPECT_EQ(warm.request.max_tokens, 1);
  EXPECT_EQ(
      Read(absl::StrCat(kEmpty, R"(, "max_tokens": 3)")).request.max_tokens, 3);
}

TEST(InfillRequestTest, SettingsThatAreNotServedAreNamed) {
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, const char*>>{
           {"mirostat", "2"},
           {"typical_p", "0.5"},
           {"dry_multiplier", "0.8"},
           {"xtc_probability", "0.5"},
           {"dynatemp_range", "0.1"},
           {"n_probs", "3"},
           {"lora", "[{}]"},
           {"return_tokens", "true"},
           {"n_predict", "-2"},
           {"stream_options", "{}"},
           {"temperature", "-1"},
           {"prompt", "[1]"},
           {"input_extra", "{}"},
           {"messages", "[]"}}) {
    EXPECT_EQ(Fault(absl::StrCat("\"", field, "\": ", value)), field) << value;
  }
  EXPECT_EQ(Fault(R"("repeat_penalty": 1.1, "repeat_last_n": 64)"),
            "repeat_last_n");
  EXPECT_EQ(Fault(R"("repeat_penalty": 1.1, "repetition_penalty": 1.2)"),
            "repeat_penalty");
  EXPECT_EQ(Fault(R"("input_extra": [{"filename": "a"}])"),
            "input_extra[0].text");
  EXPECT_EQ(Fault(R"("input_extra": [{"text": "a", "path": "b"}])"),
            "input_extra[0].path");
  EXPECT_EQ(ErrorOf(R"("input_suffix": "")").param, "input_prefix");
  EXPECT_EQ(ErrorOf(R"("input_prefix": "")").param, "input_suffix");
  EXPECT_THAT(ErrorOf(absl::StrCat(kEmpty, R"(, "typical_p": 0.5)")).message,
              HasSubstr("want 1"));
}

TEST(InfillRequestTest, AGrammarIsAConstraint) {
  EXPECT_EQ(Read(absl::StrCat(kEmpty, R"(, "grammar": "root ::= \"a\"")"))
                .request.constraint_field,
            "grammar");
}

constexpr TokenId kA = 'a' - '!';
constexpr TokenId kB = 'b' - '!';
constexpr TokenId kLine = 95;
constexpr TokenId kPrefix = 101, kSuffix = 102, kMiddle = 103, kFile = 104,
                  kRepository = 105, kEndOfText = 106;
constexpr char kFim[] = R"([
    {"id": 100, "content": "</s>", "special": true},
    {"id": 101, "content": "<|fim_prefix|>", "special": false},
    {"id": 102, "content": "<|fim_suffix|>", "special": false},
    {"id": 103, "content": "<|fim_middle|>", "special": false})";

std::vector<TokenId> Ids(const Tokenizer& tokenizer, absl::string_view text) {
  return tokenizer.Encode(text);
}
void Append(std::vector<TokenId> more, std::vector<TokenId>& ids) {
  ids.insert(ids.end(), more.begin(), more.end());
}

TEST(InfillPromptTest, APrefixAndASuffixStandAroundTheirTokens) {
  const auto tokenizer = testing::MakeAsciiTokenizer(absl::StrCat(kFim, "]"));
  EXPECT_THAT(EncodeInfill(*tokenizer, {"a", "b", {}}).value(),
              ElementsAre(kPrefix, kA, kSuffix, kB, kMiddle));
  EXPECT_THAT(EncodeInfill(*tokenizer, {}).value(),
              ElementsAre(kPrefix, kSuffix, kMiddle));
  // Without a token for files.
  std::vector<TokenId> want = Ids(*tokenizer, "\n\n--- snippet ---\n\na");
  Append({kPrefix, kSuffix, kMiddle}, want);
  EXPECT_EQ(EncodeInfill(*tokenizer, {"", "", {{"f", "a"}}}).value(), want);
}

TEST(InfillPromptTest, FilesOfARepositoryComeFirst) {
  const auto tokenizer = testing::MakeAsciiTokenizer(absl::StrCat(kFim, R"(,
      {"id": 104, "content": "<|file_sep|>", "special": false},
      {"id": 105, "content": "<|repo_name|>", "special": false}])"));
  std::vector<TokenId> want = {kRepository};
  Append(Ids(*tokenizer, "myproject\n"), want);
  Append({kFile, kA, kLine, kB, kFile}, want);
  Append(Ids(*tokenizer, "filename\n"), want);
  Append({kPrefix, kA, kSuffix, kMiddle}, want);
  EXPECT_EQ(EncodeInfill(*tokenizer, {"a", "", {{"a", "b"}}}).value(), want);
}

TEST(InfillPromptTest, TextOfTheRequestStaysText) {
  const auto tokenizer = testing::MakeAsciiTokenizer(absl::StrCat(kFim, "]"));
  const std::string spelled = "<|fim_middle|>";
  const auto ids =
      EncodeInfill(*tokenizer, {spelled, spelled, {{spelled, spelled}}});
  ASSERT_THAT(ids, IsOk());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), kMiddle), 1);
  EXPECT_EQ(ids->back(), kMiddle);
}

TEST(InfillPromptTest, AModelWithoutTheTokensIsRefused) {
  EXPECT_THAT(EncodeInfill(*testing::MakeAsciiTokenizer("[]"), {"a", "b", {}}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("no fill-in-the-middle tokens")));
}

class InfillTest : public GatewayServiceTest {
 protected:
  InfillTest() {
    generator_.info.max_positions = 1000;
    chat_ =
        ModelChat::Create(testing::MakeAsciiTokenizer(absl::StrCat(
                              kFim, R"(, {"id": 106, "content": "<|endoftext|>",
                               "special": true}])")),
                          kTemplate)
            .value();
  }
  std::shared_ptr<FakeExchange> Fill(const std::string& fields = "",
                                     HttpHeaders headers = {}) {
    return Post("/infill",
                absl::StrCat(R"({"input_prefix": "a", "input_suffix": "b")",
                             fields, "}"),
                std::move(headers));
  }
  FakeCall& last() { return *generator_.calls.back(); }
  void FinishBy(FinishReason reason, const std::string& stop_string = "") {
    GenerationSummary summary;
    summary.finish = reason;
    summary.stop_string = stop_string;
    last().listener->OnResult(summary);
    last().End(absl::OkStatus());
  }
};

TEST_F(InfillTest, AnAnswerIsACompletion) {
  const auto exchange = Fill(R"(, "n_predict": 9)");
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_THAT(call().request.prompt,
              ElementsAre(kPrefix, kA, kSuffix, kB, kMiddle));
  EXPECT_EQ(call().request.max_tokens, 9);
  // The tokens that end a middle, whatever ends the model's chats.
  EXPECT_THAT(call().request.stop_token_ids,
              ElementsAre(kPrefix, kSuffix, kMiddle, kEndOfText));
  call().Write("x\"", {kA});
  call().Write("y", {kB});
  call().Finish();
  EXPECT_EQ(exchange->response.status, 200);
  const Json body = exchange->Body();
  EXPECT_EQ(body["content"], "x\"y");
  EXPECT_EQ(body["stop"], true);
  EXPECT_EQ(body["stop_type"], "eos");
  EXPECT_EQ(body["stopping_word"], "");
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["tokens_predicted"], 2);
  EXPECT_EQ(body["tokens_evaluated"], 3);
  EXPECT_EQ(body["tokens_cached"], 1);
  EXPECT_EQ(body["truncated"], false);
  EXPECT_EQ(body["timings"]["prompt_n"], 2);
  EXPECT_EQ(body["timings"]["predicted_n"], 2);
  EXPECT_EQ(body["foretoken"]["mode"], "auto");
  EXPECT_EQ(memory_.used(), 0);
}

TEST_F(InfillTest, AStreamIsTheTextInPieces) {
  const auto exchange = Fill(R"(, "stream": true)");
  EXPECT_EQ(call().request.max_tokens, 995);  // up to the context's end
  call().Write("x", {kA});
  call().Write("", {});
  call().Write("y", {kB, kA});
  call().Finish();
  const std::vector<Json> frames = exchange->Frames();
  ASSERT_THAT(frames, SizeIs(3));
  EXPECT_EQ(frames[0], Json::parse(R"({"index": 0, "content": "x",
      "stop": false, "tokens": [64], "tokens_predicted": 1,
      "tokens_evaluated": 5})"));
  EXPECT_EQ(frames[1]["tokens"], Json({kB, kA}));
  EXPECT_EQ(frames[1]["tokens_predicted"], 3);
  EXPECT_EQ(frames[2]["content"], "");
  EXPECT_EQ(frames[2]["stop"], true);
  EXPECT_EQ(frames[2]["stop_type"], "eos");
}

TEST_F(InfillTest, TheReasonOfTheEndIsNamed) {
  const auto limit = Fill();
  last().Write("x");
  FinishBy(FinishReason::kLength);
  EXPECT_EQ(limit->Body()["stop_type"], "limit");
  const auto word = Fill(R"(, "stop": ["\n\n"])");
  FinishBy(FinishReason::kStop, "\n\n");
  EXPECT_EQ(word->Body()["stop_type"], "word");
  EXPECT_EQ(word->Body()["stopping_word"], "\n\n");
}

TEST_F(InfillTest, APromptAloneHasNoText) {
  for (const char* stream : {"false", "true"}) {
    const auto exchange =
        Fill(absl::StrCat(R"(, "n_predict": 0, "foretoken": {"tokens": true},
                               "stream": )",
                          stream));
    EXPECT_EQ(last().request.max_tokens, 1);
    last().Write("x", {kA});
    FinishBy(FinishReason::kLength);
    const bool streams = stream == std::string("true");
    if (streams) {
      EXPECT_THAT(exchange->Frames(), SizeIs(1));
    }
    const Json body = streams ? exchange->Frames().back() : exchange->Body();
    EXPECT_EQ(body["content"], "");
    EXPECT_EQ(body["stop_type"], "limit");
    EXPECT_FALSE(body["foretoken"].contains("tokens"));
  }
}

TEST_F(InfillTest, EndTokensMayBeIgnored) {
  Fill(R"(, "ignore_eos": true, "stop_token_ids": [7])");
  EXPECT_THAT(last().request.stop_token_ids, ElementsAre(7));
}

TEST_F(InfillTest, WhatDoesNotFitIsRefused) {
  const auto text =
      Post("/infill", absl::StrCat(R"({"input_suffix": "",
      "input_prefix": ")",
                                   std::string(1000, 'a'), "\"}"));
  EXPECT_EQ(text->response.status, 400);
  EXPECT_EQ(text->Body()["error"]["param"], "input_prefix");
  EXPECT_EQ(text->Body()["error"]["code"], "context_length_exceeded");
  const auto limit = Fill(R"(, "n_predict": 996)");
  EXPECT_EQ(limit->Body()["error"]["param"], "n_predict");
  EXPECT_THAT(generator_.calls, IsEmpty());
}

TEST_F(InfillTest, AModelWithoutTheTokensIsRefusedByName) {
  chat_ =
      ModelChat::Create(testing::MakeAsciiTokenizer("[]"), kTemplate).value();
  service_ = nullptr;
  const auto exchange = Fill();
  EXPECT_EQ(exchange->response.status, 400);
  EXPECT_THAT(exchange->Body()["error"]["message"].get<std::string>(),
              HasSubstr("no fill-in-the-middle tokens"));
  EXPECT_EQ(exchange->Body()["error"]["code"], "unsupported_endpoint");
  EXPECT_EQ(memory_.used(), 0);
}

TEST_F(InfillTest, AKeyIsNeeded) {
  Make({}, /*with_keys=*/true);
  EXPECT_EQ(Fill()->response.status, 401);
  Fill("", {{"Authorization", "Bearer right"}});
  ASSERT_THAT(generator_.calls, SizeIs(1));
  EXPECT_EQ(last().request.caller.name, "alice");
}

TEST_F(InfillTest, PrefixesAreSharedAsByCompletions) {
  Make({}, /*with_keys=*/true);
  const HttpHeaders key = {{"Authorization", "Bearer right"}};
  Post("/v1/completions", R"({"prompt": "ab"})", key);
  last().Finish();
  const std::string own = last().request.prefix_scope;
  EXPECT_NE(own, "");
  Fill("", key);
  last().Finish();
  EXPECT_EQ(last().request.prefix_scope, own);
  Fill(R"(, "cache_prompt": false)", key);
  last().Finish();
  EXPECT_EQ(last().request.prefix_scope, "");
  Fill(R"(, "cache_scope": "a")", key);
  last().Finish();
  EXPECT_EQ(last().request.prefix_scope, "");
  EXPECT_EQ(last().request.cache_scope, "a");
  Make();
  Fill();
  last().Finish();
  EXPECT_EQ(last().request.prefix_scope, "");
}

TEST_F(InfillTest, AStreamThatBreaksEndsWithTheError) {
  const auto exchange = Fill(R"(, "stream": true)");
  call().Write("x", {kA});
  call().End(absl::AbortedError("lost"));
  const std::vector<Json> frames = exchange->Frames();
  EXPECT_EQ(frames.back()["error"]["message"], "lost");
  EXPECT_EQ(exchange->ends, 1);
}

}  // namespace
}  // namespace foretoken::gateway
