// foretoken generate: text from a model, in this process or from a server.
#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/infer/model_path.h"
#include "common/infer/model_weights.h"
#include "tools/cli/command.h"
#include "tools/cli/generate_flags.h"
#include "tools/cli/generate_model.h"
#include "tools/cli/generate_output.h"
#include "tools/cli/generation_target.h"
#include "tools/cli/local_generator.h"

namespace foretoken::cli {
namespace {

// A target, and the tokenizer of its model; null where none is needed.
struct OpenTarget {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<GenerationTarget> target;
};

absl::StatusOr<OpenTarget> OpenServer(const GenerateFlags& flags) {
  OpenTarget open;
  if (!flags.tokenizer.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(open.tokenizer,
                               Tokenizer::LoadShared(flags.tokenizer));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      open.target,
      GenerationTarget::OpenServer(flags, flags.timeout_s, open.tokenizer));
  return open;
}

// Also completes the request: this process encodes it and draws its seed.
absl::StatusOr<OpenTarget> OpenModel(const GenerateFlags& flags,
                                     GenerationRequest& request) {
  OpenTarget open;
  // The tokenizer is missing only where nothing needs it (see LoadTokenizer).
  FORETOKEN_ASSIGN_OR_RETURN(open.tokenizer, LoadTokenizer(flags));
  if (open.tokenizer != nullptr) {
    // Maps the file without reading its weights: a mismatch is reported before
    // minutes of loading.
    FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelWeights> weights,
                               ModelWeights::Load(flags.backend.model));
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(CheckVocabulary(*open.tokenizer, weights->config()),
                 flags.backend.model));
  }
  if (request.text.has_value()) {
    // BOS is added here, as a server would.
    request.prompt = open.tokenizer->EncodePrompt(*request.text);
    request.text.reset();
  }
  request.sampling.seed = SeedOf(flags);
  request.has_seed = true;
  // Clamp before adding: max_tokens may overflow.
  const int64_t tokens =
      std::clamp<int64_t>(request.max_tokens, 0, ModelConfig::kMaxPositions) +
      static_cast<int64_t>(request.prompt.size());
  FORETOKEN_ASSIGN_OR_RETURN(
      auto local,
      StartLocalGenerator(flags, tokens, /*at_once=*/1, open.tokenizer));
  open.target = std::make_unique<GenerationTarget>(std::move(local));
  return open;
}

absl::Status Generate(const GenerateFlags& flags) {
  FORETOKEN_RETURN_IF_ERROR(CheckFlags(flags));
  if (!flags.verbose && !flags.trace) SetMinLogLevel(LogLevel::kWarning);
  // Before its tokenizer, whose format says less about why it is not supported.
  if (flags.server.empty()) {
    FORETOKEN_RETURN_IF_ERROR(CheckModel(flags.backend.model));
  }
  FORETOKEN_ASSIGN_OR_RETURN(GenerationRequest request, RequestOf(flags));
  FORETOKEN_ASSIGN_OR_RETURN(
      const OpenTarget open,
      flags.server.empty() ? OpenModel(flags, request) : OpenServer(flags));
  GenerateOutput output(flags.json, flags.sampling.logprobs >= 0);
  if (flags.show_drafters && open.tokenizer != nullptr) {
    output.ShowDrafters(*open.tokenizer);
  }
  const absl::StatusOr<GenerationSummary> summary = open.target->Generate(
      std::move(request),
      [&](const GenerationDelta& delta) { return output.Take(delta); });
  if (summary.ok()) return output.Finish(*summary);
  // Ends the colours before the error is printed.
  output.Abort();
  return summary.status();
}

}  // namespace

void AddGenerateCommand(Command root) {
  const auto [command, flags] =
      root.AddCommand<GenerateFlags>("generate", "Generate text", Generate);
  AddGenerateFlags(command, flags);
}

}  // namespace foretoken::cli
