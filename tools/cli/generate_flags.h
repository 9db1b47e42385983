// The flags of `foretoken generate` and their conversion to a request.
#ifndef FORETOKEN_TOOLS_CLI_GENERATE_FLAGS_H_
#define FORETOKEN_TOOLS_CLI_GENERATE_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/infer/factory/backend_factory.h"
#include "common/sampling/sampling_params.h"
#include "common/speculation/generation.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

struct GenerateFlags : LocalModelFlags {
  std::string server;
  ServerFlags server_access;
  std::string server_token_file;
  double timeout_s = 0;  // 0: none
  bool local = false;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> prompt_ids;
  std::optional<std::string> mode;  // absent: the server's own
  int64_t max_tokens = 128;
  SamplingParams sampling;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::string stop_token_ids;
  std::vector<std::string> logit_bias;
  bool ignore_eos = false;
  bool json = false;
  bool verbose = false;
};

// Registers every flag; numbers are checked during parsing.
void AddGenerateFlags(CLI::App& command, GenerateFlags& flags);

// Checks the rules between flags, which the parser does not know.
absl::Status CheckFlags(const GenerateFlags& flags);

// Builds the request. InvalidArgument for an empty prompt or a text that is not
// UTF-8, ResourceExhausted for a file over 64 MiB.
absl::StatusOr<GenerationRequest> RequestOf(const GenerateFlags& flags);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATE_FLAGS_H_
