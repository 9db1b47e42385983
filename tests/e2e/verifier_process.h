// Verifiers as processes of their own, for orchestrators in the test's.
#ifndef FORETOKEN_TESTS_E2E_VERIFIER_PROCESS_H_
#define FORETOKEN_TESTS_E2E_VERIFIER_PROCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/process.h"
#include "tests/integration/cluster.h"

namespace foretoken::testing {

// A verifier with a small random model of 256 tokens; always the same one.
std::unique_ptr<Process> StartVerifierProcess(
    const std::string& address,
    const std::vector<std::string>& more_flags = {});

// The orchestrator's verifier has come up.
bool HasAnswered(const TestOrchestrator& orchestrator);

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_E2E_VERIFIER_PROCESS_H_
