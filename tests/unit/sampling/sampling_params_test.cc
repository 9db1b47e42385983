#include "common/sampling/sampling_params.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 100;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void ExpectRefused(const SamplingParams& params, const std::string& why) {
  EXPECT_THAT(params.Validate(kVocab),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
}

TEST(SamplingParamsTest, DefaultsAndLimitsAreAccepted) {
  FORETOKEN_EXPECT_OK(SamplingParams().Validate(kVocab));
  SamplingParams params;
  params.temperature = 100.0f;
  params.top_k = std::numeric_limits<int32_t>::max();
  params.top_p = 1e-6f;
  params.min_p = 1.0f;
  params.repetition_penalty = 100.0f;
  params.presence_penalty = -2.0f;
  params.frequency_penalty = 2.0f;
  params.logit_bias = {{0, -100.0f}, {99, 100.0f}};
  params.end_tokens = {0, 99};
  params.min_tokens = std::numeric_limits<int32_t>::max();
  params.logprobs = kMaxLogprobs;
  FORETOKEN_EXPECT_OK(params.Validate(kVocab));
}

TEST(SamplingParamsTest, EveryFloatRefusesNanInfinityAndItsOutside) {
  struct Case {
    float SamplingParams::*field;
    const char* name;
    float below;
    float above;
  };
  for (const Case& c :
       {Case{&SamplingParams::temperature, "temperature", -0.1f, 100.1f},
        Case{&SamplingParams::top_p, "top_p", 0.0f, 1.01f},
        Case{&SamplingParams::min_p, "min_p", -0.01f, 1.01f},
        Case{&SamplingParams::repetition_penalty, "repetition_penalty", 0.0f,
             101.0f},
        Case{&SamplingParams::presence_penalty, "presence_penalty", -2.1f,
             2.1f},
        Case{&SamplingParams::frequency_penalty, "frequency_penalty", -2.1f,
             2.1f}}) {
    for (const float value :
         {c.below, c.above, std::nanf(""), kInfinity, -kInfinity}) {
      SamplingParams params;
      params.*c.field = value;
      ExpectRefused(params, std::string(c.name) + " is ");
    }
  }
}

TEST(SamplingParamsTest, MessagesNameFieldValueAndRange) {
  SamplingParams params;
  params.temperature = std::nanf("");
  ExpectRefused(params, "temperature is nan, want 0..100");
}

TEST(SamplingParamsTest, WholeNumbersHaveRanges) {
  SamplingParams params;
  params.top_k = -1;
  ExpectRefused(params, "top_k is -1");
  params = {};
  params.min_tokens = -1;
  ExpectRefused(params, "min_tokens is -1");
  params = {};
  params.logprobs = 21;
  ExpectRefused(params, "logprobs is 21, want -1 (off)..20");
  params.logprobs = -2;
  ExpectRefused(params, "logprobs is -2");
}

TEST(SamplingParamsTest, BiasNeedsDistinctTokensOfTheVocabulary) {
  SamplingParams params;
  params.logit_bias = {{kVocab, 1.0f}};
  ExpectRefused(params, "token of logit_bias is 100, want 0..99");
  params.logit_bias = {{-1, 1.0f}};
  ExpectRefused(params, "token of logit_bias is -1");
  params.logit_bias = {{5, 1.0f}, {5, 1.0f}};
  ExpectRefused(params, "logit_bias names token 5 twice");
  params.logit_bias = {{5, std::nanf("")}};
  ExpectRefused(params, "logit_bias of token 5 is nan");
  params.logit_bias = {{5, -100.5f}};
  ExpectRefused(params, "logit_bias of token 5 is -100.5");
  params.logit_bias.assign(kMaxTokenListSize + 1, {5, 0.0f});
  ExpectRefused(params, "size of logit_bias is 1025, want 0..1024");
}

TEST(SamplingParamsTest, EndTokensNeedDistinctTokensOfTheVocabulary) {
  SamplingParams params;
  params.end_tokens = {3, kVocab};
  ExpectRefused(params, "token of end_tokens is 100");
  params.end_tokens = {3, 3};
  ExpectRefused(params, "end_tokens names token 3 twice");
}

}  // namespace
}  // namespace foretoken
