// What `bench modes` sends its requests to: a server, or a model in this
// process behind the same queue.
#ifndef FORETOKEN_TOOLS_CLI_BENCH_TARGET_H_
#define FORETOKEN_TOOLS_CLI_BENCH_TARGET_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/mode_bench/load.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

struct BenchTargetFlags {
  std::string server;  // empty: the model runs here
  ServerFlags server_access;
  std::string server_token_file;
  LocalModelFlags model;
};

// InvalidArgument unless the flags name either a server or a model;
// Unimplemented for a server in a build without services.
absl::StatusOr<std::unique_ptr<mode_bench::Generator>> OpenBenchTarget(
    const BenchTargetFlags& flags);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_BENCH_TARGET_H_
