// Services in this process over real gRPC, with a model that is quick: either
// the fake backend or a tiny random one.
#ifndef FORETOKEN_TESTS_INTEGRATION_CLUSTER_H_
#define FORETOKEN_TESTS_INTEGRATION_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "services/orchestrator/config.h"
#include "services/verifier/config.h"
#include "tests/support/fake_backend.h"
#include "tests/support/wire_client.h"

namespace foretoken::testing {

// One verifier behind a Unix socket or TCP.
struct TestVerifier {
  metrics::Registry registry;
  std::unique_ptr<verifier::VerifierServer> service;
  std::unique_ptr<rpc::Server> server;

  std::string address() const { return server->addresses().at(0); }
  // The value of a sample of its page; dies if there is none.
  double Sample(const std::string& sample) const;
};

struct TestVerifierOptions {
  FakeBackendOptions fake;
  // A random model's shape in place of the fake.
  std::string random_model;
  std::string model;  // a directory, in place of either
  int64_t kv_cache_bytes = 0;
  int32_t threads = 1;
  verifier::VerifyEngineOptions engine;
  verifier::VerifierServerOptions server;
  rpc::ServerOptions rpc;  // listens on 127.0.0.1:0 unless it says otherwise
};
std::unique_ptr<TestVerifier> StartVerifier(TestVerifierOptions options);

struct TestOrchestrator {
  metrics::Registry registry;
  std::unique_ptr<orchestrator::OrchestratorServer> service;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<WireClient> client;

  std::string address() const { return server->addresses().at(0); }
  double Sample(const std::string& sample) const;
};
// Without a tokenizer; `config.verifiers` must be set.
std::unique_ptr<TestOrchestrator> StartOrchestrator(
    orchestrator::OrchestratorService config,
    const rpc::ServerOptions& rpc = {});

// What a client saw of one request.
struct Generated {
  absl::Status status;
  std::vector<TokenId> tokens;
  int deltas = 0;
  std::vector<v1::RoundTree> trees;
  v1::GenerateResult result;
};
Generated Generate(const WireClient& client, const v1::GenerateRequest& request,
                   absl::Duration timeout = absl::Minutes(2));

// A request over token ids; mode "off", "prompt_lookup:max_n=2", ...
v1::GenerateRequest MakeRequest(absl::Span<const TokenId> prompt,
                                const std::string& mode, int max_tokens);

// A prompt of `length` ids below `vocab_size` that repeats itself now and then.
std::vector<TokenId> MakePrompt(uint64_t seed, int length, int vocab_size);

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_INTEGRATION_CLUSTER_H_
