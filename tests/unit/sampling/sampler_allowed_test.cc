// Sampling under a mask of allowed tokens (SamplingState::Sample).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sampling/sampler.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A bit for each of the tokens.
std::vector<uint64_t> Bits(int32_t vocab_size,
                           const std::vector<TokenId>& tokens) {
  std::vector<uint64_t> bits((vocab_size + 63) / 64);
  for (const TokenId token : tokens) {
    bits[token / 64] |= uint64_t{1} << (token % 64);
  }
  return bits;
}

bool Has(const std::vector<uint64_t>& bits, TokenId token) {
  return (bits[token / 64] >> (token % 64) & 1) != 0;
}

struct Context {
  std::vector<TokenId> committed;
  std::vector<TokenId> path;
  int64_t prompt_length = 0;
};

SampledToken Sample(const SamplingParams& params,
                    const std::vector<float>& logits,
                    const std::vector<uint64_t>* allowed,
                    const Context& context = {}) {
  SamplingState state(params, context.prompt_length,
                      static_cast<int32_t>(logits.size()));
  state.Append(context.committed);
  SamplingState::Scratch scratch;
  return state.Sample(logits, context.path,
                      allowed == nullptr ? nullptr : allowed->data(), scratch);
}

SamplingParams RandomParams(std::mt19937& random, int32_t vocab_size) {
  const auto one_in = [&](int n) { return random() % n == 0; };
  SamplingParams params;
  params.seed = random();
  if (!one_in(3)) params.temperature = one_in(2) ? 1.0f : 0.7f;
  if (one_in(3)) params.top_k = 1 + random() % 5;
  if (one_in(3)) params.top_p = 0.8f;
  if (one_in(4)) params.min_p = 0.1f;
  if (one_in(3)) params.repetition_penalty = 1.3f;
  if (one_in(3)) params.presence_penalty = 0.5f;
  if (one_in(3)) params.frequency_penalty = -0.4f;
  if (one_in(3)) {
    params.logit_bias = {{static_cast<TokenId>(random() % vocab_size), 4.0f}};
  }
  return params;
}

TEST(SamplerAllowedTest, WithoutAMaskAndWithAFullOneTheTokenIsTheSame) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 2);
    const int32_t size = 1 + random() % 200;
    std::vector<float> logits(size);
    for (float& logit : logits) logit = normal(random);
    const SamplingParams params = RandomParams(random, size);
    const std::vector<uint64_t> full((size + 63) / 64, ~uint64_t{0});
    ASSERT_EQ(Sample(params, logits, &full).token,
              Sample(params, logits, nullptr).token)
        << "seed " << seed;
  }
}

// As if the logits of the others were -infinity, in every mode, bit for bit.
TEST(SamplerAllowedTest, TheTokenIsThatOfLogitsWithoutTheOthers) {
  int banned_best = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 2);
    const int32_t size = 2 + random() % 150;
    std::vector<float> logits(size);
    for (float& logit : logits) {
      logit = normal(random);
      if (random() % 40 == 0) logit = std::round(logit);
      if (random() % 60 == 0) logit = kNan;
      if (random() % 60 == 0) logit = -kInfinity;
    }
    std::vector<uint64_t> allowed(Bits(size, {}));
    const int share = 1 + random() % 10;
    for (TokenId token = 0; token < size; ++token) {
      if (static_cast<int>(random() % 10) < share) {
        allowed[token / 64] |= uint64_t{1} << (token % 64);
      }
    }
    // At least one that can be drawn.
    const TokenId sure = random() % size;
    logits[sure] = 0.5f;
    allowed[sure / 64] |= uint64_t{1} << (sure % 64);
    SamplingParams params = RandomParams(random, size);
    Context context;
    context.prompt_length = 3;
    for (int i = 0; i < 8; ++i) context.committed.push_back(random() % size);
    for (int i = 0; i < 3; ++i) context.path.push_back(random() % size);

    const SampledToken got = Sample(params, logits, &allowed, context);

    std::vector<float> masked = logits;
    for (TokenId token = 0; token < size; ++token) {
      if (!Has(allowed, token)) masked[token] = -kInfinity;
    }
    ASSERT_EQ(got.token, Sample(params, masked, nullptr, context).token)
        << "seed " << seed;
    ASSERT_TRUE(Has(allowed, got.token)) << "seed " << seed;
    banned_best +=
        !Has(allowed, Sample(params, logits, nullptr, context).token);
  }
  EXPECT_GT(banned_best, 500);
}

TEST(SamplerAllowedTest, BannedTokensAreNeverDrawn) {
  const std::vector<float> logits = {9.0f, 1.0f, 8.0f, 0.9f, 7.0f, 1.1f};
  const std::vector<uint64_t> allowed = Bits(6, {1, 3, 5});
  SamplingParams sampled;
  sampled.temperature = 1.0f;
  SamplingParams top_k = sampled, top_p = sampled, penalised = sampled;
  top_k.top_k = 2;
  top_p.top_p = 0.5f;
  penalised.repetition_penalty = 5.0f;
  penalised.presence_penalty = 2.0f;
  for (SamplingParams params :
       {SamplingParams(), sampled, top_k, top_p, penalised}) {
    std::vector<int> seen(6);
    for (params.seed = 0; params.seed < 300; ++params.seed) {
      Context context;
      context.committed = {1, 5, 5};
      ++seen[Sample(params, logits, &allowed, context).token];
    }
    EXPECT_EQ(seen[0] + seen[2] + seen[4], 0) << params.temperature;
    EXPECT_EQ(seen[1] + seen[3] + seen[5], 300);
    EXPECT_GT(seen[1], params.temperature > 0 ? 5 : -1);
  }
}

TEST(SamplerAllowedTest, ABiasDoesNotBringABannedTokenBack) {
  SamplingParams params;
  params.logit_bias = {{0, 100.0f}};
  const std::vector<uint64_t> allowed = Bits(3, {1, 2});
  EXPECT_EQ(Sample(params, {5.0f, 1.0f, 2.0f}, &allowed).token, 2);
}

TEST(SamplerAllowedTest, LogprobsAreThoseOfTheRawLogits) {
  const std::vector<float> logits = {5.0f, 1.0f, 4.0f, 0.5f};
  SamplingParams params;
  params.logprobs = 3;
  const std::vector<uint64_t> only = Bits(4, {3});
  const SampledToken masked = Sample(params, logits, &only);
  EXPECT_EQ(masked.token, 3);

  params.logit_bias = {{3, 100.0f}};  // the same token, without a mask
  const SampledToken plain = Sample(params, logits, nullptr);
  ASSERT_EQ(plain.token, 3);
  EXPECT_EQ(masked.logprob, plain.logprob);
  EXPECT_LT(masked.logprob, -4.0f);
  ASSERT_EQ(masked.top_logprobs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(masked.top_logprobs[i].token, plain.top_logprobs[i].token);
    EXPECT_EQ(masked.top_logprobs[i].logprob, plain.top_logprobs[i].logprob);
  }
  EXPECT_EQ(masked.top_logprobs[0].token, 0);  // banned, and reported
}

TEST(SamplerAllowedTest, CandidatesAreThoseOfTheRawLogits) {
  SamplingState state({}, 0, 4);
  state.set_candidates(2);
  SamplingState::Scratch scratch;
  const std::vector<uint64_t> only = Bits(4, {3});
  const std::vector<float> logits = {5.0f, 1.0f, 4.0f, 0.5f};
  const SampledToken got = state.Sample(logits, {}, only.data(), scratch);
  EXPECT_EQ(got.token, 3);
  ASSERT_EQ(got.top_logprobs.size(), 2u);
  EXPECT_EQ(got.top_logprobs[0].token, 0);
  EXPECT_EQ(got.top_logprobs[1].token, 2);
}

TEST(SamplerAllowedTest, MinTokensBansEndTokensWhileTextIsAllowed) {
  SamplingParams params;
  params.min_tokens = 2;
  params.end_tokens = {0};
  const std::vector<float> logits = {9.0f, 1.0f, 2.0f, 3.0f};
  const std::vector<uint64_t> allowed = Bits(4, {0, 1, 2});
  Context context;
  EXPECT_EQ(Sample(params, logits, &allowed, context).token, 2);
  context.path = {2};
  EXPECT_EQ(Sample(params, logits, &allowed, context).token, 2);
  context.path = {2, 2};
  EXPECT_EQ(Sample(params, logits, &allowed, context).token, 0);
}

TEST(SamplerAllowedTest, EndTokensPassUnderMinTokensWhereNothingElseIsAllowed) {
  SamplingParams params;
  params.min_tokens = 5;
  params.end_tokens = {70, 3};
  std::vector<float> logits(100, 1.0f);
  logits[3] = -5.0f;
  logits[70] = -4.0f;
  const std::vector<uint64_t> ends = Bits(100, {3, 70});
  EXPECT_EQ(Sample(params, logits, &ends).token, 70);
  params.temperature = 1.0f;
  std::vector<int> seen(100);
  for (params.seed = 0; params.seed < 200; ++params.seed) {
    ++seen[Sample(params, logits, &ends).token];
  }
  EXPECT_EQ(seen[3] + seen[70], 200);
  EXPECT_GT(seen[3], 10);
  // One of them, with a text token beside it: the text token.
  const std::vector<uint64_t> text = Bits(100, {3, 99});
  EXPECT_EQ(Sample(params, logits, &text).token, 99);
}

TEST(SamplerAllowedTest, AnEndTokenThatIsNamedTwiceIsNoText) {
  SamplingParams params;
  params.min_tokens = 5;
  params.end_tokens = {1, 1};
  const std::vector<float> logits = {3.0f, 2.0f, 1.0f};
  const std::vector<uint64_t> end = Bits(3, {1});
  EXPECT_EQ(Sample(params, logits, &end).token, 1);
  // Two bits, one of which is text.
  const std::vector<uint64_t> both = Bits(3, {1, 2});
  EXPECT_EQ(Sample(params, logits, &both).token, 2);
}

TEST(SamplerAllowedTest, WhereNoAllowedTokenHasALogitTheLowestIsTaken) {
  std::vector<float> logits(200, 1.0f);
  for (const TokenId token : {130, 150}) logits[token] = -kInfinity;
  const std::vector<uint64_t> allowed = Bits(200, {130, 150});
  SamplingParams params;
  EXPECT_EQ(Sample(params, logits, &allowed).token, 130);
  params.temperature = 1.0f;
  for (params.seed = 0; params.seed < 50; ++params.seed) {
    EXPECT_EQ(Sample(params, logits, &allowed).token, 130);
  }
}

// A tokenizer may have more tokens than the model has logits.
TEST(SamplerAllowedTest, BitsBeyondTheVocabularyCountForNothing) {
  SamplingParams params;
  params.min_tokens = 5;
  params.end_tokens = {1};
  const std::vector<float> logits = {3.0f, 2.0f, 1.0f};
  std::vector<uint64_t> allowed = Bits(3, {1});
  allowed[0] |= uint64_t{0xFF} << 3;
  EXPECT_EQ(Sample(params, logits, &allowed).token, 1);
}

}  // namespace
}  // namespace foretoken
