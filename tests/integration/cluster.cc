#include "tests/integration/cluster.h"

#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/rpc/convert.h"
#include "common/speculation/modes.h"
#include "tests/support/metric_samples.h"

namespace foretoken::testing {
namespace {

double SampleOf(const metrics::Registry& registry, const std::string& sample) {
  const absl::StatusOr<double> value =
      metrics::SampleValue(registry.Text(), sample);
  FORETOKEN_CHECK(value.ok());
  return *value;
}

std::unique_ptr<rpc::Server> Listen(rpc::ServerOptions options,
                                    rpc::Servable* servable) {
  if (options.listen.empty()) options.listen = {"127.0.0.1:0"};
  auto server = rpc::Server::Start(options, {servable});
  FORETOKEN_CHECK(server.ok());
  return *std::move(server);
}

}  // namespace

double TestVerifier::Sample(const std::string& sample) const {
  return SampleOf(registry, sample);
}
double TestOrchestrator::Sample(const std::string& sample) const {
  return SampleOf(registry, sample);
}

std::unique_ptr<TestVerifier> StartVerifier(TestVerifierOptions options) {
  auto verifier = std::make_unique<TestVerifier>();
  if (options.random_model.empty() && options.model.empty()) {
    options.engine.max_rows_per_session =
        options.server.sessions.max_rows_per_session + 1;
    verifier->service = std::make_unique<verifier::VerifierServer>(
        options.server,
        std::make_unique<verifier::VerifyEngine>(
            options.engine, std::make_unique<FakeBackend>(options.fake)),
        verifier->registry);
  } else {
    BackendOptions backend;
    backend.model = options.model;
    if (options.model.empty()) backend.random_model = options.random_model;
    backend.kv_cache_bytes = options.kv_cache_bytes;
    backend.threads = options.threads;
    backend.precision = "fp32";
    auto service =
        verifier::VerifierService{backend, options.engine, options.server}.Make(
            verifier->registry);
    FORETOKEN_CHECK(service.ok());
    verifier->service = *std::move(service);
  }
  verifier->server = Listen(options.rpc, verifier->service.get());
  return verifier;
}

std::unique_ptr<TestOrchestrator> StartOrchestrator(
    orchestrator::OrchestratorService config, const rpc::ServerOptions& rpc) {
  auto result = std::make_unique<TestOrchestrator>();
  config.pool.probe_interval = absl::Milliseconds(50);
  auto service = config.Make(result->registry);
  FORETOKEN_CHECK(service.ok());
  result->service = *std::move(service);
  result->server = Listen(rpc, result->service.get());
  auto client = WireClient::Connect(result->address(), {});
  FORETOKEN_CHECK(client.ok());
  result->client = *std::move(client);
  return result;
}

Generated Generate(const WireClient& client, const v1::GenerateRequest& request,
                   absl::Duration timeout) {
  Generated generated;
  auto result = client.Generate(
      request, absl::Now() + timeout, [&](const v1::GenerateDelta& delta) {
        generated.tokens.insert(generated.tokens.end(),
                                delta.token_ids().begin(),
                                delta.token_ids().end());
        ++generated.deltas;
        if (delta.has_round_tree()) {
          generated.trees.push_back(delta.round_tree());
        }
        return true;
      });
  generated.status = result.status();
  if (result.ok()) generated.result = *std::move(result);
  return generated;
}

v1::GenerateRequest MakeRequest(absl::Span<const TokenId> prompt,
                                const std::string& mode, int max_tokens) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
  const auto spec = Mode::Parse(mode);
  FORETOKEN_CHECK(spec.ok());
  FORETOKEN_CHECK(rpc::ToProto(*spec, request.mutable_speculation()).ok());
  request.set_max_tokens(max_tokens);
  return request;
}

std::vector<TokenId> MakePrompt(uint64_t seed, int length, int vocab_size) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> prompt;
  while (static_cast<int>(prompt.size()) < length) {
    if (prompt.size() > 8 && random() % 4 == 0) {
      const size_t from = random() % (prompt.size() - 4);
      for (int i = 0; i < 4; ++i) prompt.push_back(prompt[from + i]);
    } else {
      prompt.push_back(static_cast<TokenId>(random() % vocab_size));
    }
  }
  prompt.resize(length);
  return prompt;
}

}  // namespace foretoken::testing
