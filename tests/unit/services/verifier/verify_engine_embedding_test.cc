// Sessions that read a text for its embedding: on the fake backend, whose
// states are known, and on the real ones with a tiny random model.
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cuda/cuda_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/verifier/core/state_pool.h"
#include "services/verifier/core/verify_engine.h"
#include "tests/support/cuda_twin/device_twin.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/services/verifier/engine_fixture.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Embedding = std::vector<float>;

std::vector<TokenId> Text(int length, uint32_t seed, int32_t vocab_size) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(length);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % vocab_size);
  }
  return tokens;
}

SessionRequest EmbeddingRequest(std::vector<TokenId> text, Pooling pooling) {
  SessionRequest request = Request(std::move(text), 0);
  request.pooling = pooling;
  return request;
}

// By definition: of the fake backend's states.
Embedding Expected(const SessionRequest& request) {
  StatePool pool(request.pooling, 8);
  for (size_t i = 1; i <= request.tokens.size(); ++i) {
    pool.Add(
        testing::FakeLogits(absl::MakeConstSpan(request.tokens).first(i), 8));
  }
  return pool.Finish().value();
}

// Runs passes until the embeddings of all requests are there, beside sessions
// that generate without drafts until then.
std::vector<Embedding> Embed(VerifyEngine& engine,
                             const std::vector<SessionRequest>& requests,
                             const std::vector<SessionRequest>& others = {}) {
  std::map<SessionId, size_t> index;
  for (const SessionRequest& other : others) {
    EXPECT_THAT(engine.Open(other), IsOk());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = engine.Open(requests[i]);
    EXPECT_THAT(id, IsOk());
    index[*id] = i;
  }
  std::vector<Embedding> embeddings(requests.size());
  size_t left = requests.size();
  for (int pass = 0; left > 0 && pass < 10000; ++pass) {
    PassReport report = engine.RunPass();
    EXPECT_THAT(report.failures, IsEmpty());
    if (!report.failures.empty()) break;
    std::vector<std::pair<SessionId, int64_t>> next;
    for (auto& [id, result] : report.prefilled) {
      const auto found = index.find(id);
      if (found == index.end()) {
        next.emplace_back(id, result.length);
        continue;
      }
      EXPECT_EQ(result.finish, FinishReason::kStop);
      EXPECT_THAT(result.tokens, IsEmpty());
      embeddings[found->second] = std::move(result.embedding);
      EXPECT_THAT(engine.Close(id), IsOk());
      --left;
    }
    for (const auto& [id, result] : report.rounds) {
      if (result.finish == FinishReason::kNone) {
        next.emplace_back(id, result.length);
      }
    }
    for (const auto& [id, length] : next) {
      RoundRequest round;
      round.length = length;
      EXPECT_THAT(engine.Submit(id, std::move(round)), IsOk());
    }
  }
  EXPECT_EQ(left, 0u);
  return embeddings;
}

TEST(VerifyEngineEmbeddingTest, PoolsTheStatesOfWhateverChunks) {
  for (const int32_t rows : {2, 7, 64, 256}) {
    for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
      VerifyEngineOptions options;
      options.max_rows_per_pass = rows;
      Fixture fixture({}, options);
      const std::vector<SessionRequest> requests = {
          EmbeddingRequest(Text(1, 1, 50), pooling),
          EmbeddingRequest(Text(100, 2, 50), pooling),
          EmbeddingRequest(Text(333, 3, 50), pooling)};
      const std::vector<Embedding> got =
          Embed(*fixture.engine, requests, {Request(Text(40, 4, 50), 400)});
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(got[i], Expected(requests[i])) << rows << " " << i;
      }
    }
  }
}

TEST(VerifyEngineEmbeddingTest, TheModelsPoolingIsTheMeanByDefault) {
  Fixture fixture;
  const std::vector<TokenId> text = Text(20, 5, 50);
  EXPECT_EQ(
      Embed(*fixture.engine, {EmbeddingRequest(text, Pooling::kModel)})[0],
      Expected(EmbeddingRequest(text, Pooling::kMean)));
}

// A text may fill the context, and nothing is reserved behind it.
TEST(VerifyEngineEmbeddingTest, ATextMayFillContextAndCache) {
  testing::FakeBackendOptions backend;
  backend.max_positions = 96;
  backend.pages = 3;
  Fixture fixture(backend);
  const SessionRequest whole =
      EmbeddingRequest(Text(96, 6, 50), Pooling::kMean);
  EXPECT_EQ(Embed(*fixture.engine, {whole})[0], Expected(whole));
  EXPECT_EQ(fixture.engine->snapshot().kv.pages_free, 3);
  EXPECT_THAT(
      fixture.engine->Open(EmbeddingRequest(Text(97, 6, 50), Pooling::kMean)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("maximum context length is 96 tokens")));
}

// While rounds wait, a long text takes no more rows than any prompt does.
TEST(VerifyEngineEmbeddingTest, DecodingGoesOnBesideALongText) {
  VerifyEngineOptions options;
  options.prefill_chunk = 16;
  Fixture fixture({}, options);
  VerifyEngine& engine = *fixture.engine;
  const auto decoding = engine.Open(Request({1, 2, 3}, 1000));
  ASSERT_THAT(decoding, IsOk());
  int64_t length = engine.RunPass().prefilled.at(0).result.length;
  const auto text =
      engine.Open(EmbeddingRequest(Text(800, 7, 50), Pooling::kMean));
  ASSERT_THAT(text, IsOk());
  for (int pass = 0;; ++pass) {
    ASSERT_LT(pass, 1000);
    RoundRequest round;
    round.length = length;
    ASSERT_THAT(engine.Submit(*decoding, std::move(round)), IsOk());
    const PassReport report = engine.RunPass();
    ASSERT_THAT(report.rounds, SizeIs(1));
    length = report.rounds[0].result.length;
    EXPECT_LE(report.stats.prefill_rows, 16);
    if (report.prefilled.empty()) continue;
    EXPECT_EQ(report.prefilled[0].session, *text);
    EXPECT_GE(pass, 49);
    break;
  }
}

TEST(VerifyEngineEmbeddingTest, SharesNoPrefixPagesEitherWay) {
  Fixture fixture;
  const std::vector<TokenId> text = Text(100, 8, 50);
  SessionRequest embedding = EmbeddingRequest(text, Pooling::kMean);
  SessionRequest plain = Request(text, 1);
  embedding.cache_scope = plain.cache_scope = "scope";
  EXPECT_EQ(Embed(*fixture.engine, {embedding})[0], Expected(embedding));
  const auto reused = [&] {
    EXPECT_THAT(fixture.engine->Open(plain), IsOk());
    return fixture.engine->RunPass().prefilled.at(0).result.reused_tokens;
  };
  EXPECT_EQ(reused(), 0);
  EXPECT_EQ(reused(), 96);  // those of the plain session
  EXPECT_EQ(Embed(*fixture.engine, {embedding})[0], Expected(embedding));
  EXPECT_EQ(reused(), 96);
}

// Another caller's session takes the pages of a text that is half read.
TEST(VerifyEngineEmbeddingTest, APreemptedTextIsReadAgain) {
  testing::FakeBackendOptions backend;
  backend.pages = 12;
  VerifyEngineOptions options;
  options.max_rows_per_pass = 33;
  Fixture fixture(backend, options);
  VerifyEngine& engine = *fixture.engine;
  const auto open = [&](SessionRequest request, const std::string& caller) {
    request.caller = caller;
    const auto id = engine.Open(std::move(request));
    EXPECT_THAT(id, IsOk());
    return *id;
  };
  open(Request({1}, 20), "first");  // the oldest is spared
  const SessionRequest text =
      EmbeddingRequest(Text(320, 9, 50), Pooling::kMean);
  const SessionId embedded = open(text, "heavy");
  for (int pass = 0; pass < 3; ++pass) engine.RunPass();
  open(Request(Text(96, 10, 50), 1), "light");
  std::optional<Embedding> got;
  for (int pass = 0; !got.has_value() && engine.HasWork(); ++pass) {
    ASSERT_LT(pass, 1000);
    for (auto& [id, result] : engine.RunPass().prefilled) {
      if (id == embedded) got = std::move(result.embedding);
    }
  }
  EXPECT_GT(engine.snapshot().totals.preemptions, 0);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(*got, Expected(text));
}

TEST(VerifyEngineEmbeddingTest, RefusesOutputAndRounds) {
  Fixture fixture;
  VerifyEngine& engine = *fixture.engine;
  SessionRequest replay = EmbeddingRequest({1, 2, 3}, Pooling::kMean);
  replay.prompt_length = 2;
  EXPECT_THAT(engine.Open(replay), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("prompt_length")));
  SessionRequest constrained = EmbeddingRequest({1}, Pooling::kMean);
  constrained.constraint.source = "[a-z]+";
  constrained.constraint.kind = Constraint::Kind::kRegex;
  EXPECT_THAT(
      engine.Open(constrained),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("constraint")));
  const auto id = engine.Open(EmbeddingRequest({1}, Pooling::kLast));
  ASSERT_THAT(id, IsOk());
  ASSERT_THAT(engine.RunPass().prefilled, SizeIs(1));
  RoundRequest round;
  round.length = 1;
  EXPECT_THAT(engine.Submit(*id, round),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
}

// What a pass of so many rows costs decides how many rounds may have.
TEST(VerifyEngineEmbeddingTest, PoolingIsNotTimedWithItsPass) {
  std::vector<absl::Duration> passes;
  for (const absl::Duration pooling : {absl::ZeroDuration(), absl::Hours(1)}) {
    absl::Time* now = nullptr;
    testing::FakeBackendOptions backend;
    backend.before_pass = [&now] { *now += absl::Milliseconds(10); };
    backend.before_states = [&now, pooling] { *now += pooling; };
    Fixture fixture(backend);
    now = &fixture.now;
    Embed(*fixture.engine,
          {EmbeddingRequest(Text(100, 11, 50), Pooling::kMean)});
    passes.push_back(fixture.engine->snapshot().largest_pass);
  }
  EXPECT_GT(passes[0], absl::ZeroDuration());
  EXPECT_EQ(passes[0], passes[1]);
}

TEST(VerifyEngineEmbeddingTest, AModelWithoutNumbersServesNobody) {
  testing::FakeBackendOptions backend;
  backend.broken_from = 2;
  Fixture fixture(backend);
  VerifyEngine& engine = *fixture.engine;
  const auto decoding = engine.Open(Request({1, 2, 3}, 5));
  ASSERT_THAT(decoding, IsOk());
  ASSERT_THAT(engine.RunPass().prefilled, SizeIs(1));
  const auto text = engine.Open(EmbeddingRequest({4, 5}, Pooling::kMean));
  ASSERT_THAT(text, IsOk());
  const PassReport report = engine.RunPass();
  const auto unavailable =
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not finite"));
  ASSERT_THAT(report.failures, SizeIs(1));
  EXPECT_EQ(report.failures[0].session, *text);
  EXPECT_THAT(report.failures[0].status, unavailable);
  EXPECT_THAT(engine.snapshot().model_fault, unavailable);
  EXPECT_THAT(engine.Open(Request({1}, 5)), unavailable);
}

// States of one text alone are that text's fault, and another's in its pass go
// on to be embedded.
TEST(VerifyEngineEmbeddingTest, ATextWithoutNumbersFailsAlone) {
  testing::FakeBackendOptions backend;
  backend.poison = 49;
  Fixture fixture(backend);
  VerifyEngine& engine = *fixture.engine;
  const auto bad = engine.Open(EmbeddingRequest({4, 49}, Pooling::kMean));
  const SessionRequest good = EmbeddingRequest({4, 5}, Pooling::kMean);
  const auto other = engine.Open(good);
  ASSERT_THAT(bad, IsOk());
  ASSERT_THAT(other, IsOk());
  const PassReport report = engine.RunPass();
  ASSERT_THAT(report.failures, SizeIs(1));
  EXPECT_EQ(report.failures[0].session, *bad);
  EXPECT_EQ(report.failures[0].status.code(), absl::StatusCode::kDataLoss);
  ASSERT_THAT(report.prefilled, SizeIs(1));
  EXPECT_EQ(report.prefilled[0].result.embedding, Expected(good));
  EXPECT_THAT(engine.snapshot().model_fault, IsOk());
}

constexpr int32_t kVocab = 211;

std::unique_ptr<VerifyEngine> MakeEngine(bool cuda, Pooling of_model,
                                         int threads = 1) {
  VerifyEngineOptions options;
  options.prefill_chunk = 24;
  ModelConfig config = testing::TinyModelConfig(kVocab);
  config.pooling = of_model;
  auto weights = testing::TinyModelWeights(config);
  if (cuda) {
    CudaOptions gpu;
    gpu.kv_cache_bytes = int64_t{4} << 20;
    auto backend = MakeCudaBackend(*weights, MakeDeviceTwin, gpu);
    EXPECT_THAT(backend, IsOk());
    return std::make_unique<VerifyEngine>(options, *std::move(backend));
  }
  CpuOptions cpu;
  cpu.threads = threads;
  auto backend = MakeCpuBackend(std::move(weights), cpu);
  EXPECT_THAT(backend, IsOk());
  return std::make_unique<VerifyEngine>(options, *std::move(backend));
}

std::vector<SessionRequest> Texts(Pooling pooling) {
  std::vector<SessionRequest> requests;
  for (const int length : {1, 2, 31, 32, 33, 65, 200}) {
    requests.push_back(
        EmbeddingRequest(Text(length, 20 + length, kVocab), pooling));
  }
  return requests;
}

double Cosine(const Embedding& a, const Embedding& b) {
  EXPECT_EQ(a.size(), b.size());
  double product = 0, left = 0, right = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * b[i];
    left += double{a[i]} * a[i];
    right += double{b[i]} * b[i];
  }
  EXPECT_NEAR(left, 1, 1e-5);
  EXPECT_NEAR(right, 1, 1e-5);
  return product / std::sqrt(left * right);
}

// On either backend: alone in a pass, or beside others and with more threads.
TEST(VerifyEngineEmbeddingTest, CompanyChangesNoBitOfARealModels) {
  std::vector<SessionRequest> others;
  for (const uint32_t seed : {30, 31, 32}) {
    others.push_back(Request(Text(50, seed, kVocab), 300));
  }
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    const std::vector<SessionRequest> requests = Texts(pooling);
    std::vector<std::vector<Embedding>> alone(2);
    for (const bool cuda : {false, true}) {
      for (const SessionRequest& request : requests) {
        alone[cuda].push_back(Embed(*MakeEngine(cuda, pooling), {request})[0]);
      }
      EXPECT_EQ(Embed(*MakeEngine(cuda, pooling, 3), requests, others),
                alone[cuda]);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_GE(Cosine(alone[0][i], alone[1][i]), 0.999) << i;
    }
  }
}

TEST(VerifyEngineEmbeddingTest, TheModelsOwnPoolingIsUsed) {
  const SessionRequest last = EmbeddingRequest({1, 2, 3}, Pooling::kLast);
  SessionRequest any = last;
  any.pooling = Pooling::kModel;
  EXPECT_EQ(Embed(*MakeEngine(false, Pooling::kLast), {any}),
            Embed(*MakeEngine(false, Pooling::kMean), {last}));
  const auto engine = MakeEngine(false, Pooling::kNone);
  EXPECT_THAT(engine->Open(any), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("want mean or last")));
  EXPECT_THAT(engine->Open(last), IsOk());
}

}  // namespace
}  // namespace foretoken::verifier
