#include "common/rpc/grpc_log.h"

#include "common/base/log.h"
#include "common/base/log_throttle.h"
#include "grpc/support/log.h"

namespace foretoken::rpc {
namespace {

void LogLine(gpr_log_func_args* args) {
  // Never destroyed: gRPC's threads may log until the process ends.
  static LogThrottle* const throttle = new LogThrottle();
  if (!throttle->Take()) return;
  // gRPC's errors are warnings here: it retries or reports them by a status.
  if (args->severity == GPR_LOG_SEVERITY_ERROR) {
    FORETOKEN_LOG(kWarning, "gRPC: ", args->message, throttle->Skipped());
  } else {
    FORETOKEN_LOG(kInfo, "gRPC: ", args->message, throttle->Skipped());
  }
}

}  // namespace

void RedirectGrpcLog() { gpr_set_log_function(&LogLine); }

}  // namespace foretoken::rpc
