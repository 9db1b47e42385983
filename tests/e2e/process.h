// Processes as they run in the field: started, and ended by signals.
#ifndef FORETOKEN_TESTS_E2E_PROCESS_H_
#define FORETOKEN_TESTS_E2E_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace foretoken::testing {

class Process {
 public:
  explicit Process(std::vector<std::string> args);
  ~Process();  // kills it
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal_number);
  // The exit code, or -signal. Signal 0 sends none and waits.
  int End(int signal_number);

 private:
  pid_t pid_ = 0;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_E2E_PROCESS_H_
