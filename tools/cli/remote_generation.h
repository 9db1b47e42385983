// `foretoken generate`: one request to an orchestrator.
#ifndef FORETOKEN_TOOLS_CLI_REMOTE_GENERATION_H_
#define FORETOKEN_TOOLS_CLI_REMOTE_GENERATION_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/generation_client.h"
#include "common/speculation/modes.h"
#include "services/orchestrator/core/decode_loop.h"

namespace foretoken::cli {

struct RemoteOptions {
  std::string address;
  rpc::ChannelOptions channel;
  absl::Duration timeout = absl::InfiniteDuration();
};

struct RemoteResult {
  std::vector<TokenId> prompt;  // as the server used it
  orchestrator::GenerationSummary summary;
  std::string mode;
  uint64_t seed = 0;
};

// `text` wins over request.prompt. The seed is the request's if `has_seed`,
// else the server draws one. Errors are the server's.
absl::StatusOr<RemoteResult> GenerateRemotely(
    const RemoteOptions& options, const std::optional<std::string>& text,
    const orchestrator::GenerationRequest& request, bool has_seed,
    const Mode& mode,
    const std::function<absl::Status(const orchestrator::Delta&)>& on_delta);

// The same over `client`.
absl::StatusOr<RemoteResult> GenerateOver(
    const rpc::GenerationClient& client, absl::Duration timeout,
    const std::optional<std::string>& text,
    const orchestrator::GenerationRequest& request, bool has_seed,
    const Mode& mode,
    const std::function<absl::Status(const orchestrator::Delta&)>& on_delta);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_REMOTE_GENERATION_H_
