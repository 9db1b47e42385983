// Answers of /v1/responses.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/answer_parts.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/chat_output.h"
#include "services/gateway/core/json_text.h"
#include "services/gateway/core/token_texts.h"

namespace foretoken::gateway {
namespace {

constexpr char kIdPrefix[] = "resp_";
constexpr int kTooManyRequests = 429;
constexpr int kBadRequest = 400;
// Upper bound of an item without its text: ids, the name of a function.
constexpr int64_t kItemBytes = 1024;

// What an answer of this form is at some moment.
enum class State : uint8_t { kInProgress, kCompleted, kIncomplete, kFailed };

const char* StateName(State state) {
  switch (state) {
    case State::kInProgress:
      return "in_progress";
    case State::kCompleted:
      return "completed";
    case State::kIncomplete:
      return "incomplete";
    case State::kFailed:
      break;
  }
  return "failed";
}

// One of the codes that this form knows.
const char* CodeOf(const ApiError& error) {
  if (error.http_status == kTooManyRequests) return "rate_limit_exceeded";
  return error.http_status == kBadRequest ? "invalid_prompt" : "server_error";
}

// A message, the call of a function or the model's reasoning.
struct Item {
  enum class Type : uint8_t { kMessage, kCall, kReasoning };
  Type type = Type::kMessage;
  std::string id;
  std::string text;      // of a message or of reasoning; a call's arguments
  std::string logprobs;  // a message's, as JSON, joined by commas
  std::string call_id, name;
  State state = State::kInProgress;

  bool is_call() const { return type == Type::kCall; }
  // The name of its part and of the events with its text.
  const char* part_name() const {
    return type == Type::kMessage ? "output_text" : "reasoning_text";
  }
  const char* id_prefix() const {
    switch (type) {
      case Type::kMessage:
        return "msg_";
      case Type::kCall:
        return "fc_";
      case Type::kReasoning:
        return "rs_";
    }
    return "";
  }
  // The text as a part of the message or the reasoning.
  void AppendPart(std::string& out) const {
    absl::StrAppend(&out, R"({"type":")", part_name(), R"(","text":)");
    AppendJsonString(text, out);
    if (type == Type::kMessage) {
      absl::StrAppend(&out, R"(,"annotations":[],"logprobs":[)", logprobs, "]");
    }
    out += '}';
  }
  void AppendJson(std::string& out) const {
    absl::StrAppend(&out, R"({"id":")", id, R"(","status":")",
                    StateName(state));
    if (is_call()) {
      absl::StrAppend(&out, R"(","type":"function_call","call_id":)",
                      JsonString(call_id), ",\"name\":", JsonString(name),
                      ",\"arguments\":");
      AppendJsonString(text, out);
      out += '}';
      return;
    }
    out += type == Type::kMessage
               ? R"(","type":"message","role":"assistant","content":[)"
               : R"(","type":"reasoning","summary":[],"content":[)";
    // The part is added after the item.
    if (state != State::kInProgress) AppendPart(out);
    out += "]}";
  }
};

// Both forms: the body is the response that ends the stream. An item is open
// until the next one begins. Long texts are appended to the output directly,
// without further copies: GenerationExchange counts them.
class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(const ApiRequest& request, AnswerOptions options)
      : request_(request),
        options_(std::move(options)),
        texts_(options_.tokenizer),
        results_(request),
        splitter_(request, options_, 0),
        pieces_(options_.tokenizer) {}

  void OnDelta(int64_t /*choice*/, const GenerationDelta& delta,
               std::string& out) override {
    Begin(out);
    if (request_.stream) {
      std::string extension;
      if (AppendChunkExtension(request_, delta, texts_, pieces_, extension)) {
        Event("response.foretoken.delta",
              absl::StrCat("\"foretoken\":", extension), out);
      }
    } else if (request_.want_tokens && !delta.token_ids.empty()) {
      if (!tokens_.empty()) tokens_ += ',';
      pieces_.Append(delta, tokens_);
    }
    if (request_.logprobs) TakeLogprobs(delta);
    if (request_.stream) {
      taken_bytes_ += static_cast<int64_t>(JsonStringBytes(delta.text));
    }
    const AnswerDelta split = splitter_.Take(delta);
    DropReasoningLogprobs();
    Add(split, out);
  }

  void OnResult(int64_t choice, const GenerationSummary& summary,
                std::string& out) override {
    Begin(out);
    results_.Set(choice, summary);
    const AnswerDelta last = splitter_.Finish();
    DropReasoningLogprobs();
    Add(last, out);
    if (items_.empty()) OpenItem(Item::Type::kMessage, out);
    state_ = summary.finish == FinishReason::kLength || splitter_.cut_off()
                 ? State::kIncomplete
                 : State::kCompleted;
    CloseItem(state_, out);
  }

  void Finish(const AnswerTimes& times, std::string& out) override {
    Json extension = results_.Extension(times);
    std::string end = absl::StrCat(",\"usage\":", Usage(), ",\"foretoken\":");
    absl::StrAppend(&end, absl::StripSuffix(DumpJson(extension), "}"));
    if (!tokens_.empty()) absl::StrAppend(&end, ",\"tokens\":[", tokens_, "]");
    end += '}';
    if (!request_.stream) {
      AppendResponse(state_, "null", end, out);
      return;
    }
    BeginEvent(state_ == State::kCompleted ? "response.completed"
                                           : "response.incomplete",
               out);
    out += "\"response\":";
    AppendResponse(state_, "null", end, out);
    EndEvent(out);
  }

  void Fail(const ApiError& error, std::string& out) override {
    const std::string message = JsonString(error.message);
    Event("error",
          absl::StrCat("\"code\":\"", CodeOf(error), "\",\"message\":", message,
                       ",\"param\":",
                       error.param.empty() ? "null" : JsonString(error.param)),
          out);
    if (!items_.empty() && items_.back().state == State::kInProgress) {
      items_.back().state = State::kIncomplete;
    }
    BeginEvent("response.failed", out);
    out += "\"response\":";
    AppendResponse(State::kFailed,
                   absl::StrCat("{\"code\":\"", CodeOf(error),
                                "\",\"message\":", message, "}"),
                   ",\"usage\":null", out);
    EndEvent(out);
  }

  int64_t kept_bytes() const override {
    if (!request_.stream) return 0;
    // Text that the splitter holds back is in no item yet; control tokens that
    // it spells out are in items alone.
    return std::max(taken_bytes_, item_bytes_) + logprob_bytes_ +
           kItemBytes * static_cast<int64_t>(items_.size());
  }

 private:
  // --- Events, of streams only -----------------------------------------------

  // The event's members are appended between the two.
  void BeginEvent(absl::string_view type, std::string& out) {
    absl::StrAppend(&out, "event: ", type, "\ndata: {\"type\":\"", type,
                    "\",\"sequence_number\":", events_++, ",");
  }
  static void EndEvent(std::string& out) { out += "}\n\n"; }
  // An event with short members.
  void Event(absl::string_view type, absl::string_view members,
             std::string& out) {
    BeginEvent(type, out);
    out.append(members.data(), members.size());
    EndEvent(out);
  }
  // The place of the open item, and of its part, if it has one.
  std::string Place() const {
    return absl::StrCat("\"item_id\":\"", items_.back().id,
                        "\",\"output_index\":", items_.size() - 1,
                        items_.back().is_call() ? "" : ",\"content_index\":0");
  }
  void ItemEvent(absl::string_view type, std::string& out) {
    if (!request_.stream) return;
    BeginEvent(type, out);
    absl::StrAppend(&out, "\"output_index\":", items_.size() - 1, ",\"item\":");
    items_.back().AppendJson(out);
    EndEvent(out);
  }
  void PartEvent(absl::string_view type, std::string& out) {
    BeginEvent(type, out);
    absl::StrAppend(&out, Place(), ",\"part\":");
    items_.back().AppendPart(out);
    EndEvent(out);
  }

  void Begin(std::string& out) {
    if (!request_.stream || events_ > 0) return;
    for (const char* type : {"response.created", "response.in_progress"}) {
      BeginEvent(type, out);
      out += "\"response\":";
      AppendResponse(State::kInProgress, "null", ",\"usage\":null", out);
      EndEvent(out);
    }
  }

  // --- Items -----------------------------------------------------------------

  void Add(const AnswerDelta& delta, std::string& out) {
    if (!delta.reasoning.empty()) {
      AddText(Item::Type::kReasoning, delta.reasoning, out);
    }
    delta.InOrder(
        [&](absl::string_view text) {
          AddText(Item::Type::kMessage, text, out);
        },
        [&](const ToolCallDelta& part) {
          AddCall(part, out);
          // A call shows none, but text after it may be of the same tokens.
          if (part.content_before == delta.content.size()) PassLogprobs();
        });
  }

  void AddText(Item::Type type, absl::string_view text, std::string& out) {
    if (items_.empty() || items_.back().type != type) OpenItem(type, out);
    Item& item = items_.back();
    absl::StrAppend(&item.text, text);
    const bool is_message = type == Item::Type::kMessage;
    const std::string logprobs = is_message ? WaitingLogprobs() : "";
    if (request_.stream) {
      const std::string quoted = JsonString(text);
      item_bytes_ += static_cast<int64_t>(quoted.size());
      std::string members = absl::StrCat(Place(), ",\"delta\":", quoted);
      if (is_message) {
        absl::StrAppend(&members, ",\"logprobs\":[", logprobs, "]");
      }
      Event(absl::StrCat("response.", item.part_name(), ".delta"), members,
            out);
    }
    if (is_message) KeepLogprobs(logprobs);
  }

  void AddCall(const ToolCallDelta& part, std::string& out) {
    if (!part.id.empty()) {
      CloseItem(State::kCompleted, out);
      Item& item = NewItem(Item::Type::kCall);
      item.call_id = part.id;
      item.name = part.name;
      ItemEvent("response.output_item.added", out);
    }
    if (part.arguments.empty()) return;
    items_.back().text += part.arguments;
    if (!request_.stream) return;
    const std::string quoted = JsonString(part.arguments);
    item_bytes_ += static_cast<int64_t>(quoted.size());
    Event("response.function_call_arguments.delta",
          absl::StrCat(Place(), ",\"delta\":", quoted), out);
  }

  Item& NewItem(Item::Type type) {
    Item& item = items_.emplace_back();
    item.type = type;
    item.id = absl::StrCat(item.id_prefix(),
                           absl::StripPrefix(options_.id, kIdPrefix), "_",
                           items_.size() - 1);
    return item;
  }

  // Opens a message or reasoning, with its part.
  void OpenItem(Item::Type type, std::string& out) {
    CloseItem(State::kCompleted, out);
    NewItem(type);
    if (!request_.stream) return;
    ItemEvent("response.output_item.added", out);
    PartEvent("response.content_part.added", out);
  }

  void TakeLogprobs(const GenerationDelta& delta) {
    for (const SampledToken& token : delta.logprobs) {
      std::string& json = logprobs_.emplace_back();
      AppendTokenLogprob(texts_, token, json);
      logprob_bytes_ += static_cast<int64_t>(json.size() + 1);
    }
  }
  // Reasoning shows none.
  void DropReasoningLogprobs() {
    while (!logprobs_.empty() &&
           passed_logprobs_ < splitter_.reasoning_tokens()) {
      logprobs_.pop_front();
      ++passed_logprobs_;
    }
  }
  // Takes the log-probabilities since the last text.
  std::string WaitingLogprobs() {
    std::string joined = absl::StrJoin(logprobs_, ",");
    PassLogprobs();
    return joined;
  }
  void PassLogprobs() {
    passed_logprobs_ += static_cast<int64_t>(logprobs_.size());
    logprobs_.clear();
  }
  // Appends them to those of the open message.
  void KeepLogprobs(absl::string_view joined) {
    Item& item = items_.back();
    absl::StrAppend(&item.logprobs,
                    item.logprobs.empty() || joined.empty() ? "" : ",", joined);
  }

  void CloseItem(State state, std::string& out) {
    if (items_.empty() || items_.back().state != State::kInProgress) return;
    Item& item = items_.back();
    if (item.type == Item::Type::kMessage) KeepLogprobs(WaitingLogprobs());
    item.state = state;
    if (!request_.stream) return;
    if (item.is_call()) {
      BeginEvent("response.function_call_arguments.done", out);
      absl::StrAppend(&out, Place(), ",\"name\":", JsonString(item.name),
                      ",\"arguments\":");
      AppendJsonString(item.text, out);
      EndEvent(out);
    } else {
      BeginEvent(absl::StrCat("response.", item.part_name(), ".done"), out);
      absl::StrAppend(&out, Place(), ",\"text\":");
      AppendJsonString(item.text, out);
      if (item.type == Item::Type::kMessage) {
        absl::StrAppend(&out, ",\"logprobs\":[", item.logprobs, "]");
      }
      EndEvent(out);
      PartEvent("response.content_part.done", out);
    }
    ItemEvent("response.output_item.done", out);
  }

  // --- The response ----------------------------------------------------------

  std::string Usage() const {
    const GenerationSummary& summary = results_.Of(0);
    return DumpJson(
        {{"input_tokens", summary.prompt_tokens},
         {"input_tokens_details", {{"cached_tokens", summary.reused_tokens}}},
         {"output_tokens", summary.completion_tokens},
         {"output_tokens_details",
          {{"reasoning_tokens", splitter_.reasoning_tokens()}}},
         {"total_tokens", summary.prompt_tokens + summary.completion_tokens}});
  }

  // `error`: as JSON. `end`: further members, after a comma.
  void AppendResponse(State state, absl::string_view error,
                      absl::string_view end, std::string& out) const {
    absl::StrAppend(
        &out, "{\"id\":", JsonString(options_.id), R"(,"object":"response")",
        ",\"created_at\":", options_.created, ",\"status\":\"",
        StateName(state), "\",\"model\":", JsonString(options_.model),
        ",\"error\":", error, ",\"incomplete_details\":",
        state == State::kIncomplete ? R"({"reason":"max_output_tokens"})"
                                    : "null",
        ",\"output\":[");
    if (state != State::kInProgress) {
      for (size_t i = 0; i < items_.size(); ++i) {
        if (i > 0) out += ',';
        items_[i].AppendJson(out);
      }
    }
    absl::StrAppend(
        &out, "]", request_.repeated,
        R"(,"background":false,"previous_response_id":null)",
        R"(,"service_tier":"default","store":false,"truncation":"disabled")",
        end, "}");
  }

  const ApiRequest& request_;
  const AnswerOptions options_;
  const TokenTexts texts_;
  Results results_;
  ChatSplitter splitter_;
  TokenPieces pieces_;
  std::vector<Item> items_;
  // One for each token whose text is still to come, as JSON.
  std::deque<std::string> logprobs_;
  int64_t passed_logprobs_ = 0;  // tokens before those
  std::string tokens_;           // of a body, as JSON
  State state_ = State::kInProgress;
  int64_t events_ = 0;
  // Bytes of a stream as JSON.
  int64_t taken_bytes_ = 0;  // text of all deltas
  int64_t item_bytes_ = 0;   // text of all items
  int64_t logprob_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Answer> MakeResponsesAnswer(const ApiRequest& request,
                                            AnswerOptions options) {
  return std::make_unique<ResponsesAnswer>(request, std::move(options));
}

}  // namespace foretoken::gateway
