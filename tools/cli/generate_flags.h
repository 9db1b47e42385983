// The flags of `foretoken generate` and their conversion to a request.
#ifndef FORETOKEN_TOOLS_CLI_GENERATE_FLAGS_H_
#define FORETOKEN_TOOLS_CLI_GENERATE_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "common/generation/generation.h"
#include "common/infer/factory/backend_factory.h"
#include "common/sampling/sampling_params.h"
#include "tools/cli/app.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {

// Where output comes from, and what is the same for every request: of
// `generate` and `chat`.
struct RequestFlags : LocalModelFlags, RemoteServerFlags {
  bool local = false;               // said, beside --model, which is enough
  std::string tokenizer;            // the server's
  double timeout_s = 0;             // 0: none
  std::optional<std::string> mode;  // absent: the server's own
  int64_t max_tokens = 128;
  SamplingParams sampling;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::string stop_token_ids;
  std::vector<std::string> logit_bias;
  bool ignore_eos = false;
  bool show_drafters = false;
  bool verbose = false;
};

struct GenerateFlags : RequestFlags {
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> prompt_ids;
  std::string chat = "none";
  // Constraints on the output, one of them at most.
  std::optional<std::string> json_schema;  // a file
  std::optional<std::string> regex;
  std::optional<std::string> grammar;  // a file
  std::vector<std::string> choices;
  bool json = false;
};

// Registers the flags; numbers are checked during parsing.
void AddRequestFlags(Command command, RequestFlags& flags);
void AddGenerateFlags(Command command, GenerateFlags& flags);

// Checks the rules between flags, which the parser does not know.
absl::Status CheckRequestFlags(const RequestFlags& flags);
absl::Status CheckFlags(const GenerateFlags& flags);

// The request without its prompt. InvalidArgument names the flag.
absl::StatusOr<GenerationRequest> SettingsOf(const RequestFlags& flags);

// Builds the request; of a chat, --prompt is a message of the user.
// InvalidArgument for an empty prompt or constraint, or a text that is not
// UTF-8; ResourceExhausted for a file over 64 MiB.
absl::StatusOr<GenerationRequest> RequestOf(const GenerateFlags& flags);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_GENERATE_FLAGS_H_
