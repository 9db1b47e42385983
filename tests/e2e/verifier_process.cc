#include "tests/e2e/verifier_process.h"

#include <utility>

#include "tests/support/eventually.h"

namespace foretoken::testing {

std::unique_ptr<Process> StartVerifierProcess(
    const std::string& address, const std::vector<std::string>& more_flags) {
  std::vector<std::string> args = {
      FORETOKEN_VERIFIER_BINARY, "--listen=" + address,
      "--random-model=d_model=128,layers=4,heads=4,kv_heads=2,d_ff=256,"
      "vocab=256,max_positions=2048",
      "--threads=1", "--metrics-listen="};
  args.insert(args.end(), more_flags.begin(), more_flags.end());
  return std::make_unique<Process>(std::move(args));
}

bool HasAnswered(const TestOrchestrator& orchestrator) {
  return Eventually([&] { return orchestrator.service->pool().Info().ok(); });
}

}  // namespace foretoken::testing
