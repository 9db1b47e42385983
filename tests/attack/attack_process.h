// Attackers in a process of their own, so that they take nothing of the
// victim's client but processor time, which is known when they have ended.
#ifndef FORETOKEN_TESTS_ATTACK_ATTACK_PROCESS_H_
#define FORETOKEN_TESTS_ATTACK_ATTACK_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/json.h"

namespace foretoken::attack {

class AttackProcess {
 public:
  // Runs this program with `arguments`; it must print one JSON object.
  static absl::StatusOr<std::unique_ptr<AttackProcess>> Start(
      const std::vector<std::string>& arguments);
  // Kills the process if it has not ended.
  ~AttackProcess();

  // False once it has printed its report.
  bool Attacks() const;

  struct Report {
    Json attacks;
    double processor_s = 0;
  };
  // Waits for its end. Once.
  absl::StatusOr<Report> Finish();

 private:
  AttackProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  pid_t pid_;  // 0: ended
  const int output_;
};

}  // namespace foretoken::attack

#endif  // FORETOKEN_TESTS_ATTACK_ATTACK_PROCESS_H_
