// foretoken chat: a conversation with a model, in this process or on a server.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/infer/model_path.h"
#include "common/infer/model_weights.h"
#include "common/text/chat/model_chat.h"
#include "tools/cli/chat/chat_session.h"
#include "tools/cli/chat/drafter_painter.h"
#include "tools/cli/chat/line_source.h"
#include "tools/cli/command.h"
#include "tools/cli/generate_flags.h"
#include "tools/cli/generate_model.h"
#include "tools/cli/generation_target.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/local_generator.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

constexpr int64_t kMaxTokens = 1024;  // of an answer, by default

struct ChatFlags : RequestFlags {
  std::string chat_template;
  std::string system;
  std::string history;
  bool no_history = false;
};

uint64_t DrawSeed() {
  std::random_device device;
  // 53 bits, which every JSON reader represents exactly.
  return ((uint64_t{device()} << 32) | device()) & ((uint64_t{1} << 53) - 1);
}

absl::Status CheckChatFlags(const ChatFlags& flags) {
  FORETOKEN_RETURN_IF_ERROR(CheckRequestFlags(flags));
  if (flags.server.empty() && flags.backend.model.empty()) {
    return absl::InvalidArgumentError(
        "want --model PATH, or --server ADDR with --tokenizer PATH");
  }
  if (!flags.server.empty() && flags.tokenizer.empty()) {
    return absl::InvalidArgumentError(
        "--server: wants --tokenizer, the model directory or GGUF file of the "
        "server's model, for its chat template");
  }
  if (flags.no_history && !flags.history.empty()) {
    return absl::InvalidArgumentError(
        "--history: want it without --no-history");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ModelChat>> LoadChat(const ChatFlags& flags) {
  // Before its tokenizer, whose format says less about why it is not supported.
  if (flags.server.empty()) {
    FORETOKEN_RETURN_IF_ERROR(CheckModel(flags.backend.model));
  }
  const std::string& model =
      flags.server.empty() ? flags.backend.model : flags.tokenizer;
  FORETOKEN_ASSIGN_OR_RETURN(auto chat,
                             ModelChat::Load(model, flags.chat_template));
  if (!chat->has_template()) {
    return absl::FailedPreconditionError(absl::StrCat(
        model, " has no chat template; give one with --chat-template"));
  }
  return chat;
}

absl::StatusOr<std::unique_ptr<GenerationTarget>> OpenTarget(
    const ChatFlags& flags, const ModelChat& chat) {
  if (!flags.server.empty()) {
    return GenerationTarget::OpenServer(flags, flags.timeout_s,
                                        chat.shared_tokenizer());
  }
  // In a scope of its own: only the shape is read, and the mapping is gone
  // before the engine makes its own.
  {
    FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelWeights> weights,
                               ModelWeights::Load(flags.backend.model));
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(CheckVocabulary(chat.tokenizer(), weights->config()),
                 flags.backend.model));
  }
  // One request at a time needs one session's worth of KV.
  FORETOKEN_ASSIGN_OR_RETURN(
      auto local, StartLocalGenerator(flags, /*tokens=*/0, /*at_once=*/1,
                                      chat.shared_tokenizer()));
  return std::make_unique<GenerationTarget>(std::move(local));
}

std::string HistoryFile(const ChatFlags& flags) {
  if (flags.no_history) return "";
  return flags.history.empty() ? DefaultHistoryFile() : flags.history;
}

ChatSession::Outside OutsideOf(GenerationTarget& target) {
  ChatSession::Outside outside;
  outside.generate = [&target](GenerationRequest request, auto on_delta) {
    // Ctrl-C stops the answer only while one is being written; at the prompt it
    // belongs to the line editor.
    CatchInterrupt();
    auto summary = target.Generate(std::move(request), on_delta);
    ReleaseInterrupt();
    return summary;
  };
  outside.write = [](absl::string_view text) { return WriteOut(text); };
  outside.note = [](const std::string& note) {
    // Notes may or may not end their line; the prompt that follows needs a new
    // one.
    std::fprintf(stderr, "%s%s", note.c_str(),
                 absl::EndsWith(note, "\n") ? "" : "\n");
  };
  outside.interrupted = Interrupted;
  outside.draw_seed = DrawSeed;
  return outside;
}

absl::Status Chat(const ChatFlags& flags) {
  FORETOKEN_RETURN_IF_ERROR(CheckChatFlags(flags));
  if (!flags.verbose && !flags.trace) SetMinLogLevel(LogLevel::kWarning);
  ChatOptions options;
  FORETOKEN_ASSIGN_OR_RETURN(options.request, SettingsOf(flags));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelChat> chat,
                             LoadChat(flags));
  // Later turns find the earlier ones in the caches; other callers do not.
  // Drawn, so that two chats on one server do not share it.
  options.request.cache_scope = absl::StrCat("chat-", DrawSeed());
  options.system = flags.system;
  options.show_drafters = flags.show_drafters;
  options.colours = HasColours(STDOUT_FILENO);
  options.note_colours = HasColours(STDERR_FILENO);
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<GenerationTarget> target,
                             OpenTarget(flags, *chat));
  // Without a terminal, as in a pipe, lines are read plainly and no prompt is
  // shown.
  std::unique_ptr<LineSource> lines = EditedLines("> ", HistoryFile(flags));
  if (lines == nullptr) {
    lines = PlainLines();
  } else {
    std::fputs("/help lists the commands; Ctrl-D leaves.\n", stderr);
  }
  ChatSession session(*chat, std::move(options), *lines, OutsideOf(*target));
  return session.Run();
}

void AddChatFlags(Command command, ChatFlags& flags) {
  // An answer that never ends would run to the model's limit; the flag's help
  // shows this default.
  flags.max_tokens = kMaxTokens;
  command.Add("--chat-template", flags.chat_template,
              "File with a Jinja template to use instead of the "
              "model's own");
  command.Add("--system", flags.system, "First message, of the system");
  command.Add("--history", flags.history,
              "File of the lines typed, by default chat_history in the "
              "user's folder of state");
  command.AddFlag("--no-history", flags.no_history, "Keep no such file");
  AddRequestFlags(command, flags);
}

}  // namespace

void AddChatCommand(Command root) {
  const auto [command, flags] =
      root.AddCommand<ChatFlags>("chat", "Talk to a model, turn by turn", Chat);
  AddChatFlags(command, flags);
}

void AddRunCommand(Command root) {
  const auto [command, flags] = root.AddCommand<ChatFlags>(
      "run", "Talk to MODEL, turn by turn: chat --model MODEL", Chat);
  AddChatFlags(command, flags);
  command
      .Add("MODEL", flags.backend.model, "Hugging Face directory or GGUF file")
      .Required();
}

}  // namespace foretoken::cli
