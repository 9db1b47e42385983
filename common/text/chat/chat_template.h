// ChatTemplate: the messages of a chat as a prompt, in pieces that say which
// text is the template's and which is the request's.
//
// Thread-safe: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_CHAT_TEMPLATE_H_
#define FORETOKEN_COMMON_TEXT_CHAT_CHAT_TEMPLATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/template.h"
#include "common/text/jinja/value.h"
#include "common/text/prompt_span.h"

namespace foretoken {

// Variables of a chat template, in the form of the OpenAI API; see
// jinja::ParseJsonValue.
struct ChatPrompt {
  jinja::Value messages = jinja::Value::None();   // a list of dicts
  jinja::Value tools = jinja::Value::None();      // a list of dicts, or None
  jinja::Value documents = jinja::Value::None();  // the same
  // Whether the prompt ends in the beginning of the assistant's answer.
  bool add_generation_prompt = true;
  // Further variables, such as enable_thinking. None may be called as one of
  // the above or bos_token or eos_token.
  jinja::Variables variables;
  // Time that strftime_now() formats.
  absl::Time now = absl::UnixEpoch();
  absl::TimeZone zone = absl::UTCTimeZone();
};

// The texts that a template writes for bos_token and eos_token.
struct ChatTokens {
  std::string bos;
  std::string eos;
};

class ChatTemplate {
 public:
  // Maximum size of ChatPrompt::variables.
  static constexpr size_t kMaxVariables = 256;

  // InvalidArgument names the line of a template that cannot be parsed.
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view source,
                                            ChatTokens tokens,
                                            const jinja::Limits& limits = {});

  // Pieces of alternating origin, none empty. Roles of the API (system, user,
  // assistant, tool, ...) count as the template's text, as templates make
  // control tokens of them; any other text of the messages is the request's.
  // InvalidArgument: the message of the template's raise_exception(), an error
  // with its line, or a variable that may not be set; an error of `reserve` or
  // `may_go_on` as it is.
  absl::StatusOr<std::vector<PromptSpan>> Render(
      const ChatPrompt& prompt, const jinja::ReserveMemory& reserve = nullptr,
      const jinja::MayGoOn& may_go_on = nullptr) const;

 private:
  ChatTemplate(jinja::Template parsed, ChatTokens tokens,
               const jinja::Limits& limits)
      : template_(std::move(parsed)),
        tokens_(std::move(tokens)),
        limits_(limits) {}

  jinja::Template template_;
  ChatTokens tokens_;
  jinja::Limits limits_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_CHAT_TEMPLATE_H_
