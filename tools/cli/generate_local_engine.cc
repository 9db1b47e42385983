// `foretoken generate --local` in a build without services.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/infer/factory/backend_factory.h"
#include "common/speculation/modes.h"
#include "services/local/in_process_verifier.h"
#include "services/orchestrator/core/decode_loop.h"
#include "services/orchestrator/core/modes.h"
#include "services/orchestrator/core/trace.h"
#include "services/verifier/core/verify_engine.h"
#include "tools/cli/generate_local.h"
#include "tools/cli/generate_model.h"
#include "tools/cli/generate_output.h"

namespace foretoken::cli {
namespace {

absl::StatusOr<std::vector<TokenId>> ReadPrompt(const GenerateFlags& flags,
                                                const Tokenizer* tokenizer) {
  if (flags.prompt_ids.has_value()) {
    return ParseTokenIds("--prompt-ids", *flags.prompt_ids);
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text, ReadPromptText(flags));
  // A lone BOS token is no prompt of the user's.
  if (text.empty()) return std::vector<TokenId>();
  return tokenizer->EncodePrompt(text);
}

absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const GenerateFlags& flags,
                                                     const Tokenizer* tokenizer,
                                                     size_t prompt_tokens) {
  BackendOptions options;
  options.model = flags.model;
  options.backend = flags.backend;
  options.device = flags.device;
  options.precision = flags.precision;
  options.threads = flags.threads;
  options.max_backend_sessions = 1;
  // No sum of what a user gave: it may be any number.
  options.kv_cache_tokens =
      std::clamp<int64_t>(flags.max_tokens, 0, ModelConfig::kMaxPositions) +
      static_cast<int64_t>(prompt_tokens);
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                             MakeBackend(options));
  if (tokenizer != nullptr) {
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(CheckVocabulary(*tokenizer, backend->config()), flags.model));
  }
  return backend;
}

}  // namespace

absl::Status GenerateLocally(const GenerateFlags& flags) {
  for (const std::string* path :
       {&flags.draft_model, &flags.prior, &flags.crest}) {
    if (path->empty()) continue;
    return absl::UnimplementedError(absl::StrCat(
        "'", *path, "': this build has no services that could use it"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Mode mode, Mode::Parse(flags.mode));
  FORETOKEN_ASSIGN_OR_RETURN(orchestrator::ModeSources made,
                             orchestrator::MakeSources(mode, {}));
  FORETOKEN_ASSIGN_OR_RETURN(orchestrator::GenerationRequest request,
                             RequestOf(flags));
  request.sampling.seed = SeedOf(flags);
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             LoadTokenizer(flags));
  FORETOKEN_ASSIGN_OR_RETURN(request.prompt,
                             ReadPrompt(flags, tokenizer.get()));
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> backend,
      OpenBackend(flags, tokenizer.get(), request.prompt.size()));
  orchestrator::TargetInfo target;
  target.vocab_size = backend->config().vocab_size;
  target.max_positions = backend->config().max_positions;
  target.eos_tokens = backend->config().eos_tokens;
  verifier::VerifyEngine engine(verifier::VerifyEngineOptions(),
                                std::move(backend));
  local::EngineDriver driver(engine);
  local::InProcessVerifier verifier(driver);

  const std::vector<TokenId> prompt = request.prompt;
  const SamplingParams sampling = request.sampling;
  orchestrator::DraftingOptions drafting;
  drafting.economical = made.economical;
  drafting.estimates = std::make_shared<orchestrator::DraftEstimates>();
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<orchestrator::DecodeLoop> loop,
      orchestrator::DecodeLoop::Create(std::move(request), target,
                                       tokenizer.get(), std::move(made.sources),
                                       std::move(drafting)));
  GenerateOutput output(flags.json);
  int64_t traced = 0;
  FORETOKEN_RETURN_IF_ERROR(orchestrator::Generate(
      *loop, verifier, [&](const orchestrator::Delta& delta) {
        if (flags.trace && loop->summary().rounds > traced) {
          traced = loop->summary().rounds;
          FORETOKEN_LOG(kInfo, "trace ",
                        orchestrator::TraceLine(traced, loop->last_round()));
        }
        return output.Take(delta);
      }));
  return output.Finish(prompt, loop->summary(), mode.ToString(), sampling);
}

}  // namespace foretoken::cli
