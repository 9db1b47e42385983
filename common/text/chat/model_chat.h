// ModelChat: a model's tokenizer and chat templates; turns the conversations of
// requests into token ids.
//
// Text of a request never becomes a control token: see PromptSpan.
//
// Thread-safe: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_MODEL_CHAT_H_
#define FORETOKEN_COMMON_TEXT_CHAT_MODEL_CHAT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/text/chat/chat_template.h"
#include "common/text/chat/spelled_controls.h"
#include "common/text/chat/thinking.h"
#include "common/text/chat/tool_call_form.h"
#include "common/text/chat/tool_call_wrapper.h"
#include "common/text/jinja/budget.h"
#include "common/text/prompt_span.h"
#include "common/text/tokenizer.h"

namespace foretoken {

// A conversation in the form of the OpenAI API, as JSON text: templates print
// objects with their keys in the order of the text, so a request that was
// parsed before is kept in nlohmann::ordered_json.
struct ChatRequest {
  std::string messages;   // a list of messages; see NormalizeMessages
  std::string tools;      // a list of tools; empty or "null": none
  std::string variables;  // an object of further variables, such as
                          // {"enable_thinking": false}; empty or "null": none
  // Whether the prompt ends in the beginning of the assistant's answer.
  bool add_generation_prompt = true;
};

class ModelChat {
 public:
  // `model`: a model directory or a GGUF file. `template_file`: a template to
  // use instead of the model's own; empty: none. A model without a template is
  // no error. NotFound for a missing path; InvalidArgument names the file, and
  // the line of a template that cannot be parsed.
  static absl::StatusOr<std::unique_ptr<ModelChat>> Load(
      const std::string& model, const std::string& template_file = "");
  // The template `source` for the vocabulary of `tokenizer`.
  static absl::StatusOr<std::unique_ptr<ModelChat>> Create(
      std::shared_ptr<const Tokenizer> tokenizer, absl::string_view source);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::shared_ptr<const Tokenizer> shared_tokenizer() const {
    return tokenizer_;
  }
  bool has_template() const { return default_.has_value(); }
  // How the model writes the tool calls of its answers, by its template.
  ToolCallForm tool_call_form() const { return form_; }
  // Text that it writes around their parts. Not for kNone.
  const ToolCallWrapper& tool_call_wrapper() const { return wrapper_; }
  // Special tokens of the vocabulary that structure answers of that form.
  const ControlTokens& tool_call_controls() const { return controls_; }
  // Between which tags the model thinks, by its template; unset: it does not.
  const std::optional<ThinkingTags>& thinking() const { return thinking_; }
  // Whether its template reads this variable, with which a request says how
  // much the model shall think.
  bool reads_reasoning_effort() const { return reads_reasoning_effort_; }
  // The variable of its template that turns thinking on and off; empty: none
  // does.
  absl::string_view thinking_variable() const { return thinking_variable_; }
  // Those of the tags that are special tokens of the vocabulary.
  const ControlTokens& thinking_controls() const { return thinking_controls_; }

  // The prompt in pieces that say who wrote them. `now` is the template's date
  // (UTC). InvalidArgument names the field of a request that is malformed, and
  // carries the message of a template that refuses the conversation;
  // FailedPrecondition for a model without a template.
  absl::StatusOr<std::vector<PromptSpan>> Render(
      const ChatRequest& request, absl::Time now,
      const jinja::ReserveMemory& reserve = nullptr,
      const jinja::MayGoOn& may_go_on = nullptr) const;

  // The prompt as token ids, control tokens of the template included. Nothing
  // is added: the template writes BOS itself. Errors as Render gives them.
  // `reserve` is asked for the memory of all that is made on the way, besides
  // that of `request`, and `may_go_on` now and then while the template is
  // rendered and before the encoding; their errors are returned as they are.
  // `thinking`, if not null, is set to the stage in which the answer begins;
  // kBefore for a model that does not think.
  absl::StatusOr<std::vector<TokenId>> Encode(
      const ChatRequest& request, absl::Time now,
      const jinja::ReserveMemory& reserve = nullptr,
      const jinja::MayGoOn& may_go_on = nullptr,
      ThinkingStage* thinking = nullptr) const;

 private:
  struct Parsed {
    ChatTemplate chat;
    // The template handles the role `developer` itself.
    bool knows_developer = false;
  };

  explicit ModelChat(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}
  static absl::StatusOr<Parsed> Parse(const std::string& source,
                                      const ChatTokens& tokens);
  void SetForms(absl::string_view source);
  absl::Status SetTemplates(const std::string* plain,
                            const std::string* with_tools,
                            const ChatTokens& tokens);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<Parsed> default_;
  std::optional<Parsed> tool_use_;  // unset: the default serves tools too
  ToolCallForm form_ = ToolCallForm::kNone;
  ToolCallWrapper wrapper_;
  ControlTokens controls_;
  std::optional<ThinkingTags> thinking_;
  bool reads_reasoning_effort_ = false;
  absl::string_view thinking_variable_;  // a literal
  ControlTokens thinking_controls_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_MODEL_CHAT_H_
