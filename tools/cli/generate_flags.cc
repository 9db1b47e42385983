#include "tools/cli/generate_flags.h"

#include <fstream>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/grammar/compile.h"
#include "common/speculation/modes.h"
#include "common/text/utf8.h"
#include "tools/cli/chat_format.h"

namespace foretoken::cli {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;

// Option check: the whole text must be a number in the range of T. The parser
// alone would read an empty text as 0, and wrap or truncate others.
template <typename T>
std::string CheckNumber(const std::string& text) {
  bool good;
  if constexpr (std::is_floating_point_v<T>) {
    double number;
    good = absl::SimpleAtod(text, &number);
  } else {
    T number;
    good = absl::SimpleAtoi(text, &number);
  }
  if (good) return "";
  const std::string want =
      std::is_floating_point_v<T>
          ? "a number"
          : absl::StrCat("a whole number, ", std::numeric_limits<T>::min(),
                         "..", std::numeric_limits<T>::max());
  // Cut, as an argument may be of any length.
  return absl::StrCat("'", text.substr(0, 32), "', want ", want);
}

template <typename T>
void AddNumber(Command command, const char* name, T& value, const char* help) {
  // Checked before conversion; the message names flag and range.
  command.Add(name, value, help).Check(CheckNumber<T>);
}

void AddRemoteFlags(Command command, RequestFlags& flags) {
  command.Add("--server", flags.server,
              "Address of an orchestrator: HOST:PORT or unix:/PATH");
  AddServerFlags(command, flags.server_access);
  command.Add("--server-token-file", flags.server_token_file,
              "File with the bearer token to send");
  AddNumber(command, "--timeout", flags.timeout_s,
            "Deadline of a request to a server, in seconds; 0: none");
  AddServerTokenizerOption(command, flags.tokenizer);
}

void AddModelFlags(Command command, RequestFlags& flags) {
  command.AddFlag("--local", flags.local,
                  "Run the model in this process, as --model alone does");
  AddLocalModelFlags(command, flags);
  command.AddFlag("--trace", flags.trace,
                  "Log a line for every round: tree, drafters, times");
  command.Add("--mode", flags.mode,
              "MODE[:key=value,...], by default the server's, auto if "
              "local: " +
                  ModeHelp(ModeUse::kRequest));
  AddNumber(command, "--max-tokens", flags.max_tokens, "Maximum output tokens");
}

void AddPromptFlags(Command command, GenerateFlags& flags) {
  command.Add("--prompt", flags.prompt,
              "Prompt text; BOS is added if the model requires it");
  command.Add("--prompt-file", flags.prompt_file,
              "File with the prompt text, used unchanged");
  command.Add("--prompt-ids", flags.prompt_ids,
              "Prompt as comma-separated token ids, used unchanged");
  AddChatOption(command, flags.chat);
}

void AddConstraintFlags(Command command, GenerateFlags& flags) {
  const Option schema = command.Add(
      "--json-schema", flags.json_schema,
      "File with a JSON Schema; the output is JSON that is valid under it");
  const Option regex =
      command
          .Add("--regex", flags.regex,
               "Regular expression that the whole output matches")
          .Excludes(schema);
  const Option grammar =
      command
          .Add("--grammar", flags.grammar,
               "File with a grammar in GBNF (llama.cpp's), rule root, "
               "that the output keeps to")
          .Excludes(schema)
          .Excludes(regex);
  command
      .Add("--choice", flags.choices,
           "The output is one of these texts; may be repeated")
      .Repeated()
      .Excludes(schema)
      .Excludes(regex)
      .Excludes(grammar);
}

void AddSamplingFlags(Command command, RequestFlags& flags) {
  SamplingParams& sampling = flags.sampling;
  AddNumber(command, "--temperature", sampling.temperature, "0: greedy");
  AddNumber(command, "--top-k", sampling.top_k, "0: off");
  AddNumber(command, "--top-p", sampling.top_p, "1: off");
  AddNumber(command, "--min-p", sampling.min_p, "0: off");
  AddNumber(command, "--repetition-penalty", sampling.repetition_penalty,
            "Applies to prompt and output; 1: off");
  AddNumber(command, "--presence-penalty", sampling.presence_penalty,
            "Applies to the output; -2..2");
  AddNumber(command, "--frequency-penalty", sampling.frequency_penalty,
            "Applies to the output; -2..2");
  // One value per flag, so that values may begin with '-' or contain commas.
  command
      .Add("--logit-bias", flags.logit_bias,
           "ID=BIAS, -100..100; may be repeated")
      .Repeated();
}

void AddEndFlags(Command command, RequestFlags& flags) {
  command
      .Add("--seed", flags.seed, "Random seed; drawn and printed if not given")
      .Check(CheckNumber<uint64_t>);
  command
      .Add("--stop", flags.stop,
           "Stop string, excluded from the text; may be repeated")
      .Repeated();
  command.Add("--stop-token-ids", flags.stop_token_ids,
              "Comma-separated token ids that end the output");
  AddNumber(command, "--min-tokens", flags.sampling.min_tokens,
            "Minimum output tokens before an end token is allowed");
  command.AddFlag("--ignore-eos", flags.ignore_eos,
                  "Do not end the output at the model's end tokens");
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

// Parses comma-separated ids; errors name `flag`. An empty text gives none.
absl::StatusOr<std::vector<TokenId>> ParseTokenIds(absl::string_view flag,
                                                   const std::string& text) {
  std::vector<TokenId> ids;
  if (text.empty()) return ids;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    TokenId id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": '", part.substr(0, 32),
                       "' is not a token id, want comma-separated numbers"));
    }
    ids.push_back(id);
  }
  return ids;
}

// Reads a file or a pipe byte for byte; gzip is not decompressed. Errors name
// `flag`.
absl::StatusOr<std::string> ReadVerbatim(const char* flag,
                                         const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat(flag, ": ", path, ": cannot be opened"));
  }
  std::string text;
  // Blocks, since the size of a pipe is not known.
  std::vector<char> block(size_t{1} << 16);
  while (file.read(block.data(), block.size()), file.gcount() > 0) {
    text.append(block.data(), file.gcount());
    // Tested in the loop, so that an endless pipe ends.
    if (text.size() > kMaxPromptBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(flag, ": ", path, ": over ", kMaxPromptBytes, " bytes"));
    }
  }
  if (!file.eof()) {
    return absl::DataLossError(
        absl::StrCat(flag, ": ", path, ": cannot be read"));
  }
  return text;
}

absl::Status CheckUtf8(const char* what, absl::string_view text) {
  // The server would refuse it as well, but with an error about a field that
  // the user did not write.
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": invalid UTF-8 at byte ", valid));
}

absl::StatusOr<std::string> ReadPromptText(const GenerateFlags& flags) {
  std::string text = flags.prompt.value_or("");
  if (flags.prompt_file.has_value()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        text, ReadVerbatim("--prompt-file", *flags.prompt_file));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckUtf8("prompt", text));
  return text;
}

absl::StatusOr<Constraint> ReadConstraint(const GenerateFlags& flags) {
  using Kind = Constraint::Kind;
  Constraint constraint;
  const char* flag = "--choice";
  if (flags.json_schema.has_value()) {
    flag = "--json-schema";
    constraint.kind = Kind::kJsonSchema;
    FORETOKEN_ASSIGN_OR_RETURN(constraint.source,
                               ReadVerbatim(flag, *flags.json_schema));
  } else if (flags.regex.has_value()) {
    flag = "--regex";
    constraint.kind = Kind::kRegex;
    constraint.source = *flags.regex;
  } else if (flags.grammar.has_value()) {
    flag = "--grammar";
    constraint.kind = Kind::kGrammar;
    FORETOKEN_ASSIGN_OR_RETURN(constraint.source,
                               ReadVerbatim(flag, *flags.grammar));
  } else if (!flags.choices.empty()) {
    constraint.kind = Kind::kChoice;
    constraint.choices = flags.choices;
  }
  // An empty regex or grammar is most likely a file that was not written;
  // nothing would match but the empty output.
  if (!constraint.empty() && constraint.bytes() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": it is empty"));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckUtf8(flag, constraint.source));
  for (const std::string& choice : constraint.choices) {
    FORETOKEN_RETURN_IF_ERROR(CheckUtf8(flag, choice));
  }
  if (!constraint.empty()) {
    // Before a model is loaded for it.
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(grammar::Compile(constraint).status(), flag));
  }
  return constraint;
}

}  // namespace

void AddRequestFlags(Command command, RequestFlags& flags) {
  AddRemoteFlags(command, flags);
  AddModelFlags(command, flags);
  AddSamplingFlags(command, flags);
  AddEndFlags(command, flags);
  AddBackendOptions(command, flags.backend);
  command.AddFlag("--show-drafters", flags.show_drafters,
                  "Colour each token by the drafter that supplied it, with a "
                  "legend; without colours where NO_COLOR is set or stdout is "
                  "no terminal");
  command.AddFlag("-v,--verbose", flags.verbose,
                  "Log what happens, not only warnings");
}

void AddGenerateFlags(Command command, GenerateFlags& flags) {
  AddPromptFlags(command, flags);
  AddConstraintFlags(command, flags);
  AddRequestFlags(command, flags);
  AddNumber(command, "--logprobs", flags.sampling.logprobs,
            "Report log-probabilities of each token and the N likeliest");
  command.AddFlag("--json", flags.json, "One JSON object on stdout");
}

absl::Status CheckRequestFlags(const RequestFlags& flags) {
  const bool remote = !flags.server.empty();
  // Flags that would be ignored are errors: a user who gives them expects an
  // effect.
  if (remote && (flags.local || !flags.backend.model.empty())) {
    return absl::InvalidArgumentError(
        "--server: the model is the server's, want neither --local nor "
        "--model");
  }
  if (remote) FORETOKEN_RETURN_IF_ERROR(CheckNoLocalModel(flags));
  if (remote && flags.trace) {
    return absl::InvalidArgumentError(
        "--trace: a server has its own trace flag, want this one only with "
        "--local");
  }
  if (!remote && !flags.tokenizer.empty()) {
    return absl::InvalidArgumentError(
        "--tokenizer: a model has its own, want this flag only with --server");
  }
  // Negated, so that NaN is refused as well.
  if (!(flags.timeout_s >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--timeout is ", flags.timeout_s, ", want 0 (none) or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const GenerateFlags& flags) {
  FORETOKEN_RETURN_IF_ERROR(CheckRequestFlags(flags));
  if (flags.server.empty() && flags.backend.model.empty()) {
    return absl::InvalidArgumentError("want --model PATH, or --server ADDR");
  }
  if (!flags.server.empty() && flags.show_drafters && flags.tokenizer.empty()) {
    return absl::InvalidArgumentError(
        "--show-drafters: wants --tokenizer with --server: the model directory "
        "or GGUF file of the server's model");
  }
  if (flags.show_drafters && flags.json) {
    return absl::InvalidArgumentError(
        "--show-drafters: it is for text, want it without --json");
  }
  if (flags.chat != "none" && flags.prompt_ids.has_value()) {
    return absl::InvalidArgumentError(
        "--chat: it renders a text, want it without --prompt-ids");
  }
  const int prompts = flags.prompt.has_value() + flags.prompt_file.has_value() +
                      flags.prompt_ids.has_value();
  if (prompts != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(prompts,
                     " prompts given, want one of --prompt, --prompt-file and "
                     "--prompt-ids"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerationRequest> SettingsOf(const RequestFlags& flags) {
  GenerationRequest request;
  if (flags.mode.has_value()) {
    FORETOKEN_ASSIGN_OR_RETURN(request.mode, Mode::Parse(*flags.mode));
    if (flags.server.empty()) {
      // Only for a model in this process: a server knows by itself which
      // drafters it has.
      FORETOKEN_RETURN_IF_ERROR(CheckModeHasSource(
          *request.mode, !flags.draft_model.empty(), !flags.crest.empty()));
    }
  }
  request.sampling = flags.sampling;
  // has_seed tells the two zeros apart: a server draws its own seed without it.
  request.sampling.seed = flags.seed.value_or(0);
  request.has_seed = flags.seed.has_value();
  request.max_tokens = flags.max_tokens;
  request.stop_strings = flags.stop;
  request.ignore_eos = flags.ignore_eos;
  FORETOKEN_RETURN_IF_ERROR(ParseLogitBias(flags.logit_bias, request.sampling));
  FORETOKEN_ASSIGN_OR_RETURN(
      request.stop_token_ids,
      ParseTokenIds("--stop-token-ids", flags.stop_token_ids));
  return request;
}

absl::StatusOr<GenerationRequest> RequestOf(const GenerateFlags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(GenerationRequest request, SettingsOf(flags));
  FORETOKEN_ASSIGN_OR_RETURN(request.constraint, ReadConstraint(flags));
  if (flags.prompt_ids.has_value()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        request.prompt, ParseTokenIds("--prompt-ids", *flags.prompt_ids));
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(request.text, ReadPromptText(flags));
  }
  // A BOS token alone does not count as a prompt.
  // Checked before the chat template, which would make something out of
  // nothing.
  if (request.text.has_value() ? request.text->empty()
                               : request.prompt.empty()) {
    return absl::InvalidArgumentError("prompt: it is empty");
  }
  if (flags.chat == "none") return request;
  FORETOKEN_ASSIGN_OR_RETURN(
      const ChatFormat chat,
      ChatFormat::Open(flags.chat, ModelOfChat(flags, flags.tokenizer)));
  const Json messages =
      Json::array({{{"role", "user"}, {"content", *request.text}}});
  FORETOKEN_ASSIGN_OR_RETURN(FilePrompt prompt, chat.Render(messages));
  request.text = std::move(prompt.text);
  request.prompt = std::move(prompt.ids);
  return request;
}

}  // namespace foretoken::cli
