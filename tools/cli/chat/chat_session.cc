#include "tools/cli/chat/chat_session.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/speculation/modes.h"
#include "tools/cli/chat/drafter_painter.h"

namespace foretoken::cli {

ChatSession::ChatSession(const ModelChat& chat, ChatOptions options,
                         LineSource& lines, Outside outside)
    : chat_(chat),
      options_(std::move(options)),
      lines_(lines),
      outside_(std::move(outside)),
      conversation_(options_.system),
      mode_(options_.request.mode) {
  if (options_.request.has_seed) seed_ = options_.request.sampling.seed;
}

absl::Status ChatSession::Run() {
  while (true) {
    const auto line = lines_.Next();
    // A bad line, too long or not UTF-8, costs only itself: the conversation so
    // far must survive a failed paste.
    if (!line.ok()) {
      outside_.note(std::string(line.status().message()));
      continue;
    }
    if (!line->has_value()) return absl::OkStatus();
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, Do(ParseChatLine(**line)));
    if (!more) return absl::OkStatus();
  }
}

absl::StatusOr<bool> ChatSession::Do(const ChatLine& line) {
  switch (line.kind) {
    case ChatLine::Kind::kEmpty:
      break;
    case ChatLine::Kind::kMessage:
      FORETOKEN_RETURN_IF_ERROR(Answer(line.text));
      break;
    case ChatLine::Kind::kMode:
      SetMode(line.text);
      break;
    case ChatLine::Kind::kSeed:
      SetSeed(line.text);
      break;
    case ChatLine::Kind::kStats:
      outside_.note(statistics_.Report());
      break;
    case ChatLine::Kind::kClear:
      conversation_.Clear();
      outside_.note("the conversation is forgotten");
      break;
    case ChatLine::Kind::kHelp:
      outside_.note(ChatHelp());
      break;
    case ChatLine::Kind::kQuit:
      return false;
    case ChatLine::Kind::kUnknown:
      outside_.note(
          absl::StrCat("no such command: ", line.text, "\n", ChatHelp()));
      break;
  }
  return true;
}

void ChatSession::SetMode(const std::string& mode) {
  if (!mode.empty()) {
    auto parsed = Mode::Parse(mode);
    if (!parsed.ok()) {
      // A mode with a typing error leaves the current one in force.
      return outside_.note(std::string(parsed.status().message()));
    }
    mode_ = *std::move(parsed);
  }
  outside_.note(absl::StrCat(
      "mode ", mode_.has_value() ? mode_->ToString() : "of the server"));
}

void ChatSession::SetSeed(const std::string& seed) {
  uint64_t value = 0;
  if (seed.empty()) {
    seed_.reset();
    return outside_.note("a new seed for each answer");
  }
  if (!absl::SimpleAtoi(seed, &value)) {
    return outside_.note("/seed: want a whole number from 0");
  }
  seed_ = value;
  outside_.note(absl::StrCat("seed ", value));
}

absl::Status ChatSession::Answer(const std::string& message) {
  // Added before the prompt is built, since the template needs the whole
  // conversation; each failure below takes it back, so that an unanswered
  // question does not stay in the context of the next one.
  conversation_.Add("user", message);
  GenerationRequest request = options_.request;
  request.mode = mode_;
  request.has_seed = true;
  // A seed is always sent, so that the line after the answer can name one with
  // which /seed repeats it.
  request.sampling.seed = seed_.has_value() ? *seed_ : outside_.draw_seed();
  ChatRequest chat;
  chat.messages = conversation_.Messages();
  auto prompt = chat_.Encode(chat, absl::Now());
  if (!prompt.ok()) {
    conversation_.DropLast();
    outside_.note(std::string(prompt.status().message()));
    return absl::OkStatus();
  }
  request.prompt = *std::move(prompt);

  std::optional<DrafterPainter> painter;
  if (options_.show_drafters) {
    painter.emplace(chat_.tokenizer(), options_.colours);
  }
  std::string answer;
  absl::Status written;
  bool stopped = false;
  const absl::StatusOr<GenerationSummary> summary = outside_.generate(
      std::move(request), [&](const GenerationDelta& delta) -> absl::Status {
        answer += delta.text;
        written = outside_.write(painter.has_value() ? painter->Paint(delta)
                                                     : delta.text);
        FORETOKEN_RETURN_IF_ERROR(written);
        // Ctrl-C is polled here only: an answer is stopped between two deltas,
        // where its text is whole and the request can be cancelled.
        stopped = outside_.interrupted();
        return stopped ? absl::CancelledError("stopped") : absl::OkStatus();
      });
  // Both tests are needed. `written` ends the program, since stdout is gone; a
  // stop by the user is an error of the request too, but its text stays in the
  // conversation.
  FORETOKEN_RETURN_IF_ERROR(written);
  FORETOKEN_RETURN_IF_ERROR(outside_.write(
      absl::StrCat(painter.has_value() ? painter->Finish() : "", "\n")));
  if (!summary.ok() && !stopped) {
    conversation_.DropLast();
    outside_.note(absl::StrCat("no answer: ", summary.status().message()));
    return absl::OkStatus();
  }
  // Keep the partial answer: the next message may refer to it.
  conversation_.Add("assistant", answer);
  if (painter.has_value()) {
    outside_.note(painter->Legend(options_.note_colours));
  }
  if (!summary.ok()) {
    outside_.note(Dim("stopped", options_.note_colours));
    return absl::OkStatus();
  }
  statistics_.Add(*summary);
  outside_.note(Dim(SummaryLine(*summary), options_.note_colours));
  return absl::OkStatus();
}

}  // namespace foretoken::cli
