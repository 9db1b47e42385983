// foretoken generate: text from a model, in this process or from a server.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/model_weights.h"
#include "common/spec/mode_spec.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "services/local/in_process_verifier.h"
#include "services/orchestrator/core/decode_loop.h"
#include "services/orchestrator/core/modes.h"
#include "services/verifier/core/verify_engine.h"
#include "tools/cli/command.h"
#include "tools/cli/standard_output.h"
#ifdef FORETOKEN_HAVE_SERVICES
#include "tools/cli/remote_generation.h"
#endif

namespace foretoken::cli {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;
constexpr int kMaxThreads = 1024;

struct Flags {
  std::string server;
  std::string server_tls_ca;
  std::string server_token_file;
  bool server_insecure = false;
  double timeout_s = 0;  // 0: none
  bool local = false;
  std::string model;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> prompt_ids;
  std::string mode = "off";
  int64_t max_tokens = 128;
  SamplingParams sampling;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::string stop_token_ids;
  std::vector<std::string> logit_bias;
  bool ignore_eos = false;
  std::string precision = "bf16";
  int threads = 0;
  bool json = false;
};

absl::StatusOr<std::vector<TokenId>> ParseTokenIds(absl::string_view flag,
                                                   const std::string& text) {
  std::vector<TokenId> ids;
  if (text.empty()) return ids;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    TokenId id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": '", part.substr(0, 32),
                       "' is no token id, want numbers with commas between"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::Status ParseLogitBias(const std::vector<std::string>& flags,
                            SamplingParams& sampling) {
  for (const std::string& flag : flags) {
    const std::vector<absl::string_view> parts = absl::StrSplit(flag, '=');
    TokenId id = 0;
    float bias = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &id) ||
        !absl::SimpleAtof(parts[1], &bias)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--logit-bias: '", flag.substr(0, 32), "', want ID=BIAS"));
    }
    sampling.logit_bias.emplace_back(id, bias);
  }
  return absl::OkStatus();
}

// The rules between flags that the parser does not know.
absl::Status CheckFlags(const Flags& flags) {
  if (!flags.server.empty() && (flags.local || !flags.model.empty())) {
    return absl::InvalidArgumentError(
        "--server: the model is the server's, want neither --local nor "
        "--model");
  }
  if (flags.server.empty() && (!flags.local || flags.model.empty())) {
    return absl::InvalidArgumentError(
        "want --server ADDR, or --local with --model DIR");
  }
  if (!(flags.timeout_s >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--timeout is ", flags.timeout_s, ", want 0 (none) or more"));
  }
  const int prompts = flags.prompt.has_value() + flags.prompt_file.has_value() +
                      flags.prompt_ids.has_value();
  if (prompts != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(prompts,
                     " prompts given, want one of --prompt, --prompt-file and "
                     "--prompt-ids"));
  }
  if (flags.threads < 0 || flags.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--threads is ", flags.threads, ", want 0 (all)..", kMaxThreads));
  }
  return absl::OkStatus();
}

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

// The bytes as they are, of a file or a pipe: gzip is not looked into.
absl::StatusOr<std::string> ReadVerbatim(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("--prompt-file: ", path, ": cannot be opened"));
  }
  std::string text;
  std::vector<char> block(size_t{1} << 16);
  while (file.read(block.data(), block.size()), file.gcount() > 0) {
    text.append(block.data(), file.gcount());
    if (text.size() > kMaxPromptBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "--prompt-file: ", path, ": over ", kMaxPromptBytes, " bytes"));
    }
  }
  if (!file.eof()) {
    return absl::DataLossError(
        absl::StrCat("--prompt-file: ", path, ": cannot be read"));
  }
  return text;
}

absl::StatusOr<std::string> ReadPromptText(const Flags& flags) {
  std::string text = flags.prompt.value_or("");
  if (flags.prompt_file.has_value()) {
    FORETOKEN_ASSIGN_OR_RETURN(text, ReadVerbatim(*flags.prompt_file));
  }
  const size_t valid = ValidUtf8Prefix(text);
  if (valid != text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt: no UTF-8 at byte ", valid));
  }
  return text;
}

absl::StatusOr<std::vector<TokenId>> ReadPrompt(const Flags& flags,
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
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const Flags& flags) {
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

// JSON has no infinity; this is the log of 0 in the field's usage.
double JsonLogprob(float logprob) {
  return logprob > -9999.0f ? logprob : -9999.0;
}

Json LogprobsJson(const std::vector<SampledToken>& tokens) {
  Json list = Json::array();
  for (const SampledToken& token : tokens) {
    Json top = Json::array();
    for (const TokenLogprob& entry : token.top_logprobs) {
      top.push_back(
          {{"token_id", entry.token}, {"logprob", JsonLogprob(entry.logprob)}});
    }
    list.push_back({{"token_id", token.token},
                    {"logprob", JsonLogprob(token.logprob)},
                    {"top", std::move(top)}});
  }
  return list;
}

struct Output {
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<SampledToken> logprobs;
};

double TokensPerSecond(const orchestrator::GenerationSummary& summary) {
  const double seconds = absl::ToDoubleSeconds(summary.decode_time);
  return seconds > 0 ? static_cast<double>(summary.decoded_tokens) / seconds
                     : 0.0;
}

std::string ResultJson(const std::vector<TokenId>& prompt, const Output& output,
                       const orchestrator::GenerationSummary& summary,
                       const std::string& mode,
                       const SamplingParams& sampling) {
  Json by_drafter = Json::object();
  for (const orchestrator::DrafterCounts& counts : summary.by_drafter) {
    by_drafter[counts.name] = {{"drafted", counts.drafted},
                               {"accepted", counts.accepted}};
  }
  Json json = {
      {"prompt_token_ids", prompt},
      {"token_ids", output.token_ids},
      {"text", output.text},
      {"finish_reason",
       summary.finish == FinishReason::kStop ? "stop" : "length"},
      {"usage",
       {{"prompt_tokens", summary.prompt_tokens},
        {"completion_tokens", summary.completion_tokens}}},
      {"speculation",
       {{"mode", mode},
        {"rounds", summary.rounds},
        {"accept_length", summary.accept_length()},
        {"drafted_tokens", summary.drafted},
        {"accepted_tokens", summary.accepted},
        {"by_drafter", std::move(by_drafter)}}},
      {"timing",
       {{"ttft_ms", absl::ToDoubleMilliseconds(summary.time_to_first_token)},
        {"decode_tokens_per_s", TokensPerSecond(summary)}}},
      {"seed", sampling.seed}};
  if (sampling.logprobs >= 0) json["logprobs"] = LogprobsJson(output.logprobs);
  return DumpJson(json) + "\n";
}

absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const Flags& flags,
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

// What the flags say of the request, its prompt apart.
absl::StatusOr<orchestrator::GenerationRequest> RequestOf(const Flags& flags) {
  orchestrator::GenerationRequest request;
  request.sampling = flags.sampling;
  request.max_tokens = flags.max_tokens;
  request.stop_strings = flags.stop;
  request.ignore_eos = flags.ignore_eos;
  FORETOKEN_RETURN_IF_ERROR(ParseLogitBias(flags.logit_bias, request.sampling));
  FORETOKEN_ASSIGN_OR_RETURN(
      request.stop_token_ids,
      ParseTokenIds("--stop-token-ids", flags.stop_token_ids));
  return request;
}

// Shows or keeps a delta.
absl::Status Take(const Flags& flags, const orchestrator::Delta& delta,
                  Output& output) {
  if (!flags.json) return WriteOut(delta.text);
  output.text += delta.text;
  output.token_ids.insert(output.token_ids.end(), delta.token_ids.begin(),
                          delta.token_ids.end());
  output.logprobs.insert(output.logprobs.end(), delta.logprobs.begin(),
                         delta.logprobs.end());
  return absl::OkStatus();
}

absl::Status Finish(const Flags& flags, const std::vector<TokenId>& prompt,
                    const Output& output,
                    const orchestrator::GenerationSummary& summary,
                    const std::string& mode, const SamplingParams& sampling) {
  FORETOKEN_LOG(
      kInfo, summary.completion_tokens, " tokens, ",
      absl::StrFormat("%.1f tokens/s, accept length %.2f",
                      TokensPerSecond(summary), summary.accept_length()));
  if (!flags.json) return WriteOut("\n");
  return WriteOut(ResultJson(prompt, output, summary, mode, sampling));
}

#ifdef FORETOKEN_HAVE_SERVICES
absl::Status GenerateOnServer(const Flags& flags) {
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
  Output output;
  FORETOKEN_ASSIGN_OR_RETURN(
      const RemoteResult result,
      GenerateRemotely(remote, text, request, flags.seed.has_value(), mode,
                       [&](const orchestrator::Delta& delta) {
                         return Take(flags, delta, output);
                       }));
  request.sampling.seed = result.seed;
  return Finish(flags, result.prompt, output, result.summary, result.mode,
                request.sampling);
}
#else
absl::Status GenerateOnServer(const Flags&) {
  return absl::UnimplementedError(
      "--server: this build has no services, use --local");
}
#endif

absl::Status Generate(Flags flags) {
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
  Output output;
  FORETOKEN_RETURN_IF_ERROR(orchestrator::Generate(
      *loop, verifier, [&](const orchestrator::Delta& delta) {
        return Take(flags, delta, output);
      }));
  return Finish(flags, prompt, output, loop->summary(), mode.ToString(),
                sampling);
}

// A check of an option: the whole of its text must be a number that a T holds.
// The parser alone would take an empty one for 0, and wrap or cut others.
template <typename T>
std::string CheckNumber(const std::string& text) {
  T number;
  bool good;
  if constexpr (std::is_floating_point_v<T>) {
    good = absl::SimpleAtof(text, &number);
  } else {
    good = absl::SimpleAtoi(text, &number);
  }
  if (good) return "";
  const std::string want =
      std::is_floating_point_v<T>
          ? "a number"
          : absl::StrCat("a whole number, ", std::numeric_limits<T>::min(),
                         "..", std::numeric_limits<T>::max());
  return absl::StrCat("'", text.substr(0, 32), "', want ", want);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("generate", "Generate text");
  auto flags = std::make_shared<Flags>();
  command->add_option("--server", flags->server,
                      "Address of an orchestrator: HOST:PORT or unix:/PATH");
  command->add_option("--server-tls-ca", flags->server_tls_ca,
                      "PEM roots of the server's certificate; switches TLS on");
  command->add_option("--server-token-file", flags->server_token_file,
                      "File with the bearer token to send");
  command->add_flag("--server-insecure", flags->server_insecure,
                    "Allow a server beyond this machine without TLS");
  command
      ->add_option("--timeout", flags->timeout_s,
                   "Seconds that a server has, 0 for any")
      ->check(CheckNumber<float>);
  command->add_flag("--local", flags->local, "Run the model in this process");
  command->add_option("--model", flags->model,
                      "Model directory in Hugging Face layout");
  command->add_option("--prompt", flags->prompt,
                      "Text; BOS is added where the model's files ask for it");
  command->add_option("--prompt-file", flags->prompt_file,
                      "Text of the prompt, the whole file as it is");
  command->add_option("--prompt-ids", flags->prompt_ids,
                      "Token ids with commas between, taken as they are");
  command->add_option("--mode", flags->mode, "MODE[:key=value,...]")
      ->capture_default_str();
  command->add_option("--max-tokens", flags->max_tokens, "Longest output")
      ->check(CheckNumber<int64_t>)
      ->capture_default_str();
  SamplingParams& sampling = flags->sampling;
  command->add_option("--temperature", sampling.temperature, "0 is greedy")
      ->check(CheckNumber<float>)
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "0 is off")
      ->check(CheckNumber<int32_t>);
  command->add_option("--top-p", sampling.top_p, "1 is off")
      ->check(CheckNumber<float>);
  command->add_option("--min-p", sampling.min_p, "0 is off")
      ->check(CheckNumber<float>);
  command
      ->add_option("--repetition-penalty", sampling.repetition_penalty,
                   "Over prompt and output, 1 is off")
      ->check(CheckNumber<float>);
  command
      ->add_option("--presence-penalty", sampling.presence_penalty,
                   "Over the output, -2..2")
      ->check(CheckNumber<float>);
  command
      ->add_option("--frequency-penalty", sampling.frequency_penalty,
                   "Over the output, -2..2")
      ->check(CheckNumber<float>);
  // One value each: what begins with '-' or holds commas stays whole.
  command
      ->add_option("--logit-bias", flags->logit_bias,
                   "ID=BIAS, -100..100; may be repeated")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--seed", flags->seed,
                   "Drawn, and printed, where none is given")
      ->check(CheckNumber<uint64_t>);
  command
      ->add_option("--stop", flags->stop,
                   "Stop string, left out of the text; may be repeated")
      ->expected(1)
      ->take_all();
  command->add_option("--stop-token-ids", flags->stop_token_ids,
                      "Token ids that end the output, with commas between");
  command
      ->add_option("--min-tokens", sampling.min_tokens,
                   "End tokens are banned before")
      ->check(CheckNumber<int64_t>);
  command->add_flag("--ignore-eos", flags->ignore_eos,
                    "End tokens of the model do not end the output");
  command
      ->add_option("--logprobs", sampling.logprobs,
                   "Log-probabilities of the token and of N others")
      ->check(CheckNumber<int32_t>);
  command->add_option("--precision", flags->precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "0 is all processors")
      ->check(CheckNumber<int32_t>);
  command->add_flag("--json", flags->json, "One JSON object in one line");
  command->callback(
      [flags, &run] { run = [flags] { return Generate(*flags); }; });
}

}  // namespace foretoken::cli
