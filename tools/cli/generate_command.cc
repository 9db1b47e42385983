// foretoken generate: text from a model, in this process or from a server.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/model_weights.h"
#include "common/spec/mode_spec.h"
#include "common/text/tokenizer.h"
#include "services/local/in_process_verifier.h"
#include "services/orchestrator/core/decode_loop.h"
#include "services/orchestrator/core/modes.h"
#include "services/verifier/core/verify_engine.h"
#include "tools/cli/command.h"
#include "tools/cli/generate_flags.h"
#include "tools/cli/generate_output.h"
#ifdef FORETOKEN_HAVE_SERVICES
#include "tools/cli/remote_generation.h"
#endif

namespace foretoken::cli {
namespace {

// The largest vocab_size that a model of so many tokens is padded to: small
// ones to a multiple of 128, others of 256 or by up to 1/32.
int64_t LargestPadded(int64_t tokens) {
  const int64_t multiple = tokens < 1024 ? 128 : 256;
  const int64_t rounded = (tokens + multiple - 1) / multiple * multiple;
  return tokens < 1024 ? rounded : std::max(rounded, tokens + tokens / 32);
}

// A tokenizer that knows more tokens than the model, or far fewer, belongs to
// another one; so does one that begins or ends a text with other tokens.
absl::Status CheckVocabulary(const Tokenizer& tokenizer,
                             const ModelConfig& config) {
  const int32_t tokens = tokenizer.vocab_size();
  if (tokens > config.vocab_size || config.vocab_size > LargestPadded(tokens)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tokenizer has ", tokens, " tokens and the model's vocab_size is ",
        config.vocab_size, ": they do not belong together"));
  }
  if (tokenizer.bos_token() >= 0 && config.bos_token >= 0 &&
      tokenizer.bos_token() != config.bos_token) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer's BOS token is ", tokenizer.bos_token(),
                     " and the model's bos_token_id is ", config.bos_token,
                     ": they do not belong together"));
  }
  if (tokenizer.eos_token() >= 0 && !config.eos_tokens.empty() &&
      !std::binary_search(config.eos_tokens.begin(), config.eos_tokens.end(),
                          tokenizer.eos_token())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer's EOS token is ", tokenizer.eos_token(),
                     " and the model's eos_token_id is ",
                     absl::StrJoin(config.eos_tokens, ", "),
                     ": they do not belong together"));
  }
  return absl::OkStatus();
}

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

// Null if the directory has none and none is needed.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const GenerateFlags& flags) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Load(flags.model);
  if (absl::IsNotFound(tokenizer.status()) && flags.prompt_ids.has_value() &&
      flags.stop.empty()) {
    FORETOKEN_LOG(kWarning, "no tokenizer, so no text: ",
                  std::string(tokenizer.status().message()));
    return std::unique_ptr<Tokenizer>();
  }
  return tokenizer;
}

absl::StatusOr<uint64_t> DrawSeed() {
  std::random_device device;
  // 53 bits: whole in every JSON reader.
  return ((uint64_t{device()} << 32) | device()) & ((uint64_t{1} << 53) - 1);
}

absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const GenerateFlags& flags,
                                                     const Tokenizer* tokenizer,
                                                     size_t prompt_tokens) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<ModelWeights> weights,
                             ModelWeights::Load(flags.model));
  if (tokenizer != nullptr) {
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(CheckVocabulary(*tokenizer, weights->config()), flags.model));
  }
  CpuOptions options;
  options.precision =
      flags.precision == "fp32" ? Precision::kFloat32 : Precision::kBFloat16;
  options.threads = flags.threads;
  options.max_sessions = 1;
  // No sum of what a user gave: it may be any number.
  options.kv_cache_tokens =
      std::clamp<int64_t>(flags.max_tokens, 0, ModelConfig::kMaxPositions) +
      static_cast<int64_t>(prompt_tokens);
  return MakeCpuBackend(std::move(weights), options);
}

#ifdef FORETOKEN_HAVE_SERVICES
absl::Status GenerateOnServer(const GenerateFlags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const ModeSpec mode, ModeSpec::Parse(flags.mode));
  FORETOKEN_ASSIGN_OR_RETURN(orchestrator::GenerationRequest request,
                             RequestOf(flags));
  request.sampling.seed = flags.seed.value_or(0);
  std::optional<std::string> text;
  if (flags.prompt_ids.has_value()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        request.prompt, ParseTokenIds("--prompt-ids", *flags.prompt_ids));
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(text, ReadPromptText(flags));
    if (text->empty()) {
      return absl::InvalidArgumentError("prompt: it is empty");
    }
  }
  RemoteOptions remote;
  remote.address = flags.server;
  remote.tls_ca = flags.server_tls_ca;
  remote.token_file = flags.server_token_file;
  remote.insecure = flags.server_insecure;
  if (flags.timeout_s > 0) remote.timeout = absl::Seconds(flags.timeout_s);
  GenerateOutput output(flags.json);
  FORETOKEN_ASSIGN_OR_RETURN(
      const RemoteResult result,
      GenerateRemotely(remote, text, request, flags.seed.has_value(), mode,
                       [&](const orchestrator::Delta& delta) {
                         return output.Take(delta);
                       }));
  request.sampling.seed = result.seed;
  return output.Finish(result.prompt, result.summary, result.mode,
                       request.sampling);
}
#else
absl::Status GenerateOnServer(const GenerateFlags&) {
  return absl::UnimplementedError(
      "--server: this build has no services, use --local");
}
#endif

absl::Status Generate(const GenerateFlags& flags) {
  FORETOKEN_RETURN_IF_ERROR(CheckFlags(flags));
  if (!flags.server.empty()) return GenerateOnServer(flags);
  FORETOKEN_ASSIGN_OR_RETURN(const ModeSpec mode, ModeSpec::Parse(flags.mode));
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<orchestrator::NamedDrafter> drafters,
                             orchestrator::MakeDrafters(mode));
  FORETOKEN_ASSIGN_OR_RETURN(orchestrator::GenerationRequest request,
                             RequestOf(flags));
  if (flags.seed.has_value()) {
    request.sampling.seed = *flags.seed;
  } else if (request.sampling.temperature > 0.0f) {
    FORETOKEN_ASSIGN_OR_RETURN(request.sampling.seed, DrawSeed());
    FORETOKEN_LOG(kInfo, "seed ", request.sampling.seed);
  }

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
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<orchestrator::DecodeLoop> loop,
      orchestrator::DecodeLoop::Create(std::move(request), target,
                                       tokenizer.get(), std::move(drafters),
                                       {}));
  GenerateOutput output(flags.json);
  FORETOKEN_RETURN_IF_ERROR(orchestrator::Generate(
      *loop, verifier,
      [&](const orchestrator::Delta& delta) { return output.Take(delta); }));
  return output.Finish(prompt, loop->summary(), mode.ToString(), sampling);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("generate", "Generate text");
  auto flags = std::make_shared<GenerateFlags>();
  AddGenerateFlags(*command, *flags);
  command->callback(
      [flags, &run] { run = [flags] { return Generate(*flags); }; });
}

}  // namespace foretoken::cli
