// foretoken generate: text from a model, in this process or from a server.
#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/infer/model_weights.h"
#include "tools/cli/command.h"
#include "tools/cli/generate_flags.h"
#include "tools/cli/generate_model.h"
#include "tools/cli/generate_output.h"
#include "tools/cli/local_generation.h"
#ifdef FORETOKEN_HAVE_SERVICES
#include "common/rpc/generation_client.h"
#include "tools/cli/server_channel.h"
#endif

namespace foretoken::cli {
namespace {

#ifdef FORETOKEN_HAVE_SERVICES
absl::StatusOr<GenerationSummary> GenerateOnServer(const GenerateFlags& flags,
                                                   GenerationRequest request,
                                                   GenerateOutput& output) {
  rpc::ChannelOptions channel = ChannelOf(flags.server_access);
  channel.token_file = flags.server_token_file;
  if (flags.timeout_s > 0) {
    request.deadline = MonotonicNow() + absl::Seconds(flags.timeout_s);
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<rpc::GenerationClient> client,
      rpc::GenerationClient::Connect(flags.server, channel));
  auto summary = client->Generate(request, [&](const GenerationDelta& delta) {
    return output.Take(delta);
  });
  FORETOKEN_RETURN_IF_ERROR(Annotate(summary.status(), flags.server));
  return summary;
}
#else
absl::StatusOr<GenerationSummary> GenerateOnServer(const GenerateFlags&,
                                                   GenerationRequest,
                                                   GenerateOutput&) {
  return absl::UnimplementedError(
      "--server: this build has no services, use --local");
}
#endif

absl::StatusOr<GenerationSummary> GenerateLocally(const GenerateFlags& flags,
                                                  GenerationRequest request,
                                                  GenerateOutput& output) {
  FORETOKEN_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer,
                             LoadTokenizer(flags));
  if (tokenizer != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelWeights> weights,
                               ModelWeights::Load(flags.backend.model));
    FORETOKEN_RETURN_IF_ERROR(Annotate(
        CheckVocabulary(*tokenizer, weights->config()), flags.backend.model));
  }
  if (request.text.has_value()) {
    request.prompt = tokenizer->EncodePrompt(*request.text);
    request.text.reset();
  }
  request.sampling.seed = SeedOf(flags);
  request.has_seed = true;
  // Clamp before adding: max_tokens may overflow.
  const int64_t tokens =
      std::clamp<int64_t>(request.max_tokens, 0, ModelConfig::kMaxPositions) +
      static_cast<int64_t>(request.prompt.size());
  LocalModelFlags model = flags;
  model.backend.max_sessions = 1;
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<LocalGeneration> local,
      StartLocalGeneration(model, tokens, std::move(tokenizer)));
  return local->service().Generate(
      std::move(request),
      [&](const GenerationDelta& delta) { return output.Take(delta); });
}

absl::Status Generate(const GenerateFlags& flags) {
  FORETOKEN_RETURN_IF_ERROR(CheckFlags(flags));
  if (!flags.verbose && !flags.trace) SetMinLogLevel(LogLevel::kWarning);
  FORETOKEN_ASSIGN_OR_RETURN(GenerationRequest request, RequestOf(flags));
  GenerateOutput output(flags.json, flags.sampling.logprobs >= 0);
  FORETOKEN_ASSIGN_OR_RETURN(
      const GenerationSummary summary,
      flags.server.empty()
          ? GenerateLocally(flags, std::move(request), output)
          : GenerateOnServer(flags, std::move(request), output));
  return output.Finish(summary);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Run& run) {
  const auto [command, flags] = AddCommand<GenerateFlags>(
      app, run, "generate", "Generate text", Generate);
  AddGenerateFlags(command, flags);
}

}  // namespace foretoken::cli
