// Aggregate decoding throughput of the services in one process, at two numbers
// of requests at once, in interleaved pairs: what batching is worth.
//
//   serve_bench [--concurrency=16] [--pairs=3] [verifier flags...]
//
// Prints one JSON object. Random weights: the shape is what costs.
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/json.h"
#include "common/config/flags.h"
#include "services/local/stack.h"
#include "tests/integration/cluster.h"

namespace foretoken {
namespace {

struct BenchOptions {
  int32_t concurrency = 16;
  int32_t pairs = 3;
  int32_t prompt = 32;
  int32_t output = 128;
  std::string request_mode = "off";
};

// Tokens a second of `concurrency` requests that start together; 0 on error.
double Run(const testing::WireClient& client, const BenchOptions& options,
           int concurrency, int vocab_size, uint64_t seed) {
  std::vector<std::thread> threads;
  std::vector<int> tokens(concurrency, 0);
  const absl::Time start = absl::Now();
  for (int i = 0; i < concurrency; ++i) {
    threads.emplace_back([&, i] {
      v1::GenerateRequest request = testing::MakeRequest(
          testing::MakePrompt(seed * 1000 + i, options.prompt, vocab_size),
          options.request_mode, options.output);
      request.set_ignore_eos(true);
      const testing::Generated got =
          testing::Generate(client, request, absl::Minutes(30));
      if (got.status.ok()) tokens[i] = static_cast<int>(got.tokens.size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  int total = 0;
  for (const int count : tokens) {
    if (count != options.output) return 0;
    total += count;
  }
  return total / seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status Bench(int argc, char** argv) {
  BenchOptions options;
  local::LocalService service;
  service.verifier.backend.random_model =
      "d_model=2048,layers=12,heads=32,kv_heads=4,d_ff=5632,vocab=32000";
  service.verifier.backend.threads = 1;
  Flags flags("serve_bench", "Throughput at two numbers of requests.");
  flags.Int("concurrency", &options.concurrency, {1, 128}, "Requests at once");
  flags.Int("pairs", &options.pairs, {1, 100}, "Interleaved pairs");
  flags.Int("prompt", &options.prompt, {1, 4096}, "Tokens of a prompt");
  flags.Int("output", &options.output, {1, 4096}, "Tokens of an output");
  flags.String("request-mode", &options.request_mode, "Drafting mode");
  service.verifier.AddFlags(flags);
  absl::Status parsed = flags.Parse(argc, argv);
  if (!parsed.ok()) return parsed;
  metrics::Registry registry;
  auto stack = service.Make(registry);
  if (!stack.ok()) return stack.status();
  auto server = rpc::Server::Start(rpc::ServerOptions(), {stack->get()});
  if (!server.ok()) return server.status();
  const testing::WireClient client((*server)->InProcessChannel());
  const auto info = client.GetModelInfo(absl::Now() + absl::Minutes(1));
  if (!info.ok()) return info.status();

  std::vector<double> one, many, ratio;
  Run(client, options, options.concurrency, info->vocab_size(), 0);  // warm
  for (int pair = 1; pair <= options.pairs; ++pair) {
    one.push_back(Run(client, options, 1, info->vocab_size(), pair));
    many.push_back(Run(client, options, options.concurrency, info->vocab_size(),
                       100 + pair));
    ratio.push_back(one.back() > 0 ? many.back() / one.back() : 0);
  }
  const Json result = {{"concurrency", options.concurrency},
                       {"prompt", options.prompt},
                       {"output", options.output},
                       {"mode", options.request_mode},
                       {"tokens_per_s_alone", one},
                       {"tokens_per_s_together", many},
                       {"ratio", ratio},
                       {"median_ratio", Median(ratio)}};
  std::printf("%s\n", DumpJson(result).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  const absl::Status status = foretoken::Bench(argc, argv);
  return status.ok() ? 0 : foretoken::ExitWithError(status);
}
