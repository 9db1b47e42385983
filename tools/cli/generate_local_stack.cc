// `foretoken generate --local` over all services of this process.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/infer/model_weights.h"
#include "common/metrics/registry.h"
#include "common/speculation/modes.h"
#include "services/local/stack.h"
#include "tools/cli/generate_local.h"
#include "tools/cli/generate_model.h"
#include "tools/cli/generate_output.h"
#include "tools/cli/remote_generation.h"

namespace foretoken::cli {
namespace {

// Of the request: the prompt may be a large file.
constexpr int32_t kMaxMessageBytes = 256 << 20;

local::LocalService ServiceOf(const GenerateFlags& flags) {
  local::LocalService config;
  BackendOptions& backend = config.verifier.backend;
  backend.model = flags.model;
  backend.backend = flags.backend;
  backend.device = flags.device;
  backend.precision = flags.precision;
  backend.threads = flags.threads;
  backend.max_backend_sessions = 1;
  config.draft_model = flags.draft_model;
  config.prior = flags.prior;
  config.crest = flags.crest;
  config.orchestrator.trace = flags.trace;
  config.orchestrator.max_prompt_bytes = kMaxMessageBytes;
  return config;
}

absl::Status CheckModel(const GenerateFlags& flags,
                        const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelWeights> weights,
                             ModelWeights::Load(flags.model));
  return Annotate(CheckVocabulary(*tokenizer, weights->config()), flags.model);
}

}  // namespace

absl::Status GenerateLocally(const GenerateFlags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const Mode mode, Mode::Parse(flags.mode));
  FORETOKEN_ASSIGN_OR_RETURN(orchestrator::GenerationRequest request,
                             RequestOf(flags));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             LoadTokenizer(flags));
  std::optional<std::string> text;
  if (flags.prompt_ids.has_value()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        request.prompt, ParseTokenIds("--prompt-ids", *flags.prompt_ids));
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(text, ReadPromptText(flags));
  }
  // A lone BOS token is no prompt of the user's.
  if (text.has_value() ? text->empty() : request.prompt.empty()) {
    return absl::InvalidArgumentError("prompt: it is empty");
  }
  FORETOKEN_RETURN_IF_ERROR(CheckModel(flags, tokenizer.get()));
  request.sampling.seed = SeedOf(flags);

  metrics::Registry registry;
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<local::Stack> stack,
                             ServiceOf(flags).Make(registry));
  rpc::ServerOptions in_process;
  in_process.max_message_bytes = kMaxMessageBytes;
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                             rpc::Server::Start(in_process, {stack.get()}));
  const rpc::GenerationClient client(server->InProcessChannel());
  GenerateOutput output(flags.json);
  FORETOKEN_ASSIGN_OR_RETURN(
      const RemoteResult result,
      GenerateOver(client, absl::InfiniteDuration(), text, request,
                   /*has_seed=*/true, mode,
                   [&](const orchestrator::Delta& delta) {
                     return output.Take(delta);
                   }));
  return output.Finish(result.prompt, result.summary, result.mode,
                       request.sampling);
}

}  // namespace foretoken::cli
