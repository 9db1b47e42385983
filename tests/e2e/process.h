// Processes as they run in the field: started, and ended by signals.
#ifndef FORETOKEN_TESTS_E2E_PROCESS_H_
#define FORETOKEN_TESTS_E2E_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/cluster.h"

namespace foretoken::testing {

class Process {
 public:
  explicit Process(std::vector<std::string> args);
  ~Process();  // kills it
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The exit code, or -signal. Signal 0 sends none and waits.
  int End(int signal_number);

 private:
  pid_t pid_ = 0;
};

// A verifier with a small random model of 256 tokens; always the same one.
std::unique_ptr<Process> StartVerifierProcess(
    const std::string& address,
    const std::vector<std::string>& more_flags = {});

// The orchestrator's verifier has come up.
bool HasAnswered(const TestOrchestrator& orchestrator);

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_E2E_PROCESS_H_
