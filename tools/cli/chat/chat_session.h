// ChatSession: a chat in a terminal: messages, commands and answers.
//
// It talks to interfaces and functions, so that it is tested without a
// terminal and without a model. Owned by one thread.
#ifndef FORETOKEN_TOOLS_CLI_CHAT_CHAT_SESSION_H_
#define FORETOKEN_TOOLS_CLI_CHAT_CHAT_SESSION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/generation/generation.h"
#include "common/text/chat/model_chat.h"
#include "tools/cli/chat/chat_line.h"
#include "tools/cli/chat/conversation.h"
#include "tools/cli/chat/line_source.h"
#include "tools/cli/chat/summary_line.h"

namespace foretoken::cli {

struct ChatOptions {
  // For every answer; its prompt is not used.
  GenerationRequest request;
  std::string system;
  bool show_drafters = false;
  bool colours = false;       // of the answers
  bool note_colours = false;  // of everything else
};

class ChatSession {
 public:
  struct Outside {
    // Answers a request; an error of `on_delta` cancels it.
    std::function<absl::StatusOr<GenerationSummary>(
        GenerationRequest,
        absl::FunctionRef<absl::Status(const GenerationDelta&)> on_delta)>
        generate;
    // Text of an answer; an error ends the chat.
    std::function<absl::Status(absl::string_view)> write;
    // Lines about answers, and errors.
    std::function<void(const std::string&)> note;
    // Whether the user wants the answer to stop. Called between its parts.
    std::function<bool()> interrupted;
    std::function<uint64_t()> draw_seed;
  };

  // `chat`, which has a template, and `lines` must outlive this object.
  ChatSession(const ModelChat& chat, ChatOptions options, LineSource& lines,
              Outside outside);

  // Until the input ends or /quit. An error of an answer is written out, and
  // its message forgotten; an error of `write` is returned.
  absl::Status Run();

 private:
  // False: leave.
  absl::StatusOr<bool> Do(const ChatLine& line);
  absl::Status Answer(const std::string& message);
  void SetMode(const std::string& mode);
  void SetSeed(const std::string& seed);

  const ModelChat& chat_;
  const ChatOptions options_;
  LineSource& lines_;
  const Outside outside_;
  Conversation conversation_;
  std::optional<Mode> mode_;
  std::optional<uint64_t> seed_;
  ChatStatistics statistics_;
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CHAT_CHAT_SESSION_H_
