#include "services/gateway/core/gateway_service.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/stopping.h"
#include "common/net/host_names.h"
#include "common/text/encoding_memory.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/error_forms.h"
#include "services/gateway/core/json_text.h"
#include "services/gateway/core/percent_text.h"
#include "services/gateway/core/reasoning_rules.h"
#include "services/gateway/core/requests.h"
#include "services/gateway/core/tool_rules.h"

namespace foretoken::gateway {
namespace {

// Bodies up to this size are read and encoded where they arrive, unless they
// have a chat template rendered.
constexpr size_t kSmallBody = size_t{16} << 10;
// Cost of a body in its caller's turn, besides its bytes.
constexpr int64_t kBodyCost = int64_t{1} << 10;
constexpr int64_t kTurnCost = int64_t{16} << 10;
constexpr char kModelsPath[] = "/v1/models/";

std::string DrawId() {
  std::random_device device;
  std::string id;
  // 96 random bits, so that ids do not repeat between replicas and cannot be
  // guessed.
  for (int i = 0; i < 3; ++i) absl::StrAppendFormat(&id, "%08x", device());
  return id;
}

bool IsJson(absl::string_view content_type) {
  // Parameters such as charset do not change the type.
  return absl::EqualsIgnoreCase(
      absl::StripTrailingAsciiWhitespace(
          content_type.substr(0, content_type.find(';'))),
      "application/json");
}

// A list of names of headers, which may be sent back.
bool AreHeaderNames(absl::string_view list) {
  constexpr size_t kMaxBytes = 2048;
  constexpr absl::string_view kOthers = "-_, ";
  // The list is sent back in a header, so a line break in it would add
  // headers of the client's choice.
  return !list.empty() && list.size() <= kMaxBytes &&
         std::all_of(list.begin(), list.end(), [&](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  absl::StrContains(kOthers, c);
         });
}

}  // namespace

// One time for all answers of the process: clients compare it.
GatewayService::GatewayService(const GatewayOptions& options,
                               GatewayParts parts, Generator& generator,
                               GatewayObserver& observer, Clock wall_clock,
                               Clock clock)
    : options_(options),
      prefixes_(options.prefix_sharing, options.single_user),
      parts_(std::move(parts)),
      generator_(generator),
      observer_(observer),
      wall_clock_(std::move(wall_clock)),
      clock_(std::move(clock)),
      created_(absl::ToUnixSeconds(wall_clock_())),
      // Bodies are counted in their callers' shares of memory already.
      // Created after options are set, stopped before anything that its work
      // uses (Stop).
      workers_(std::make_unique<FairWorkerPool>(
          options.workers, FairQueueLimits{.items = options.max_waiting_bodies},
          kTurnCost)) {}

const std::vector<GatewayService::Endpoint>& GatewayService::Endpoints() {
  using Self = GatewayService;
  // Never destroyed: requests of detached connections may still look at it
  // while the process ends.
  static const auto* const endpoints = new std::vector<Endpoint>{
      {"POST", "/v1/completions", Route::kCompletions, &Self::Complete},
      {"POST", "/v1/chat/completions", Route::kChat, &Self::Chat,
       /*open=*/false, /*renders=*/true},
      {"POST", "/v1/responses", Route::kResponses, &Self::Responses,
       /*open=*/false, /*renders=*/true},
      {"POST", "/v1/messages", Route::kMessages, &Self::Messages,
       /*open=*/false, /*renders=*/true},
      {"POST", "/v1/messages/count_tokens", Route::kCountTokens,
       &Self::CountTokens, /*open=*/false, /*renders=*/true},
      {"POST", "/infill", Route::kInfill, &Self::Infill},
      {"POST", "/v1/embeddings", Route::kEmbeddings, &Self::Embeddings},
      {"GET", "/v1/models", Route::kModels, &Self::Models},
      {"GET", kModelsPath, Route::kModels, &Self::OneModel},
      {"POST", "/tokenize", Route::kTokenize, &Self::Tokenize,
       /*open=*/false, /*renders=*/true},
      {"POST", "/detokenize", Route::kDetokenize, &Self::Detokenize},
      {"GET", "/health", Route::kHealth, &Self::Health, true},
      {"GET", "/", Route::kPage, &Self::Page, true}};
  return *endpoints;
}

void GatewayService::Handle(HttpRequest request,
                            std::shared_ptr<HttpExchange> exchange) {
  const std::vector<Endpoint>& endpoints = Endpoints();
  const auto endpoint = std::find_if(
      endpoints.begin(), endpoints.end(), [&](const Endpoint& each) {
        // Names of models may hold slashes.
        return request.path == each.path ||
               (each.path == absl::string_view(kModelsPath) &&
                absl::StartsWith(request.path, kModelsPath));
      });
  const bool found = endpoint != endpoints.end();
  auto context = std::make_shared<Context>();
  context->observed = std::make_unique<ObservedRequest>(
      observer_, found ? endpoint->route : Route::kOther, clock_());
  // From arrival: waiting for a turn counts.
  context->deadline = clock_() + options_.max_request_time;
  context->exchange = std::move(exchange);
  context->request = std::move(request);
  // Before any answer: refusals carry the id and the CORS headers as well, or a
  // browser would show neither.
  NameRequest(*context);
  AddCorsHeaders(*context);
  if (!found) {
    // Cut: the path comes from the client and is repeated in the answer.
    Refuse(*context, 404,
           absl::StrCat("no such path: ",
                        context->request.path.substr(0, kMaxModelBytes)));
    return;
  }
  if (!Admit(*context, *endpoint)) return;
  // A template may take long whatever the size of the body; both kinds wait for
  // their caller's turn, so that one caller cannot hold all threads.
  if (endpoint->renders || context->request.body.size() > kSmallBody) {
    HandleInTurn(std::move(context), endpoint->handler);
  } else {
    (this->*endpoint->handler)(std::move(context));
  }
}

void GatewayService::HandleInTurn(std::shared_ptr<Context> context,
                                  Handler handler) {
  FairItem item;
  item.owner = context->caller.name;
  item.weight = context->caller.weight;
  // A fixed part for what every body costs, and its bytes.
  item.cost = kBodyCost + static_cast<int64_t>(context->request.body.size());
  workers_->Submit(
      item, {[this, handler, context] {
               if (context->exchange->gone()) {  // as it waited
                 context->observed->End(kClientGone, clock_());
               } else if (clock_() >= context->deadline) {
                 RespondError(*context, absl::DeadlineExceededError(
                                            "the request has waited too long "
                                            "for its turn"));
               } else {
                 (this->*handler)(context);
               }
             },
             [this, context](const absl::Status& status) {
               RespondError(*context, status);
             }});
}

void GatewayService::Stop() {
  // Templates first: one that runs for minutes would hold up the threads that
  // are joined next.
  StopTemplates();
  workers_.reset();
  timers_.Stop();
}

void GatewayService::NameRequest(Context& context) {
  const std::string given(context.request.Header("X-Request-Id"));
  // A client's id is used only if it is harmless in logs and headers.
  context.request_id =
      !given.empty() && CheckRequestId(given).ok() ? given : DrawId();
  context.headers.emplace_back("X-Request-Id", context.request_id);
  // The name under which Anthropic's SDKs look for it.
  if (ErrorFormOf(context.request.path) == ErrorForm::kAnthropic) {
    context.headers.emplace_back("Request-Id", context.request_id);
  }
}

void GatewayService::AddCorsHeaders(Context& context) const {
  const std::vector<std::string>& allowed = options_.cors_origins;
  if (allowed.empty()) return;
  // In every answer, so that no cache gives one site's answer to another.
  context.headers.emplace_back("Vary", "Origin");
  const std::string origin(context.request.Header("Origin"));
  if (origin.empty() ||
      (std::find(allowed.begin(), allowed.end(), origin) == allowed.end() &&
       std::find(allowed.begin(), allowed.end(), "*") == allowed.end())) {
    return;
  }
  // The origin itself even for "*": a cached answer is then good for that site
  // alone (Vary).
  context.headers.emplace_back("Access-Control-Allow-Origin", origin);
  if (context.request.method != "OPTIONS") {
    // Headers that pages may read; browsers hide all others.
    context.headers.emplace_back("Access-Control-Expose-Headers",
                                 "X-Request-Id, Request-Id, "
                                 "X-Foretoken-Ignored-Fields, Retry-After, "
                                 "Retry-After-Ms");
    return;
  }
  context.headers.emplace_back("Access-Control-Allow-Methods",
                               "GET, POST, OPTIONS");
  // SDKs send headers of their own, which mean nothing here.
  const absl::string_view wanted =
      context.request.Header("Access-Control-Request-Headers");
  // Only a list that is safe to repeat.
  context.headers.emplace_back(
      "Access-Control-Allow-Headers",
      AreHeaderNames(wanted) ? std::string(wanted)
                             : "Authorization, Content-Type, X-Request-Id");
  context.headers.emplace_back("Access-Control-Max-Age", "600");
}

bool GatewayService::Admit(Context& context, const Endpoint& endpoint) {
  const HttpRequest& request = context.request;
  // Before the key is asked for: browsers send preflights without one.
  if (request.method == "OPTIONS" && !options_.cors_origins.empty()) {
    Respond(context, {204, "", {}, ""});  // a preflight; it carries no key
    return false;
  }
  // HEAD is answered like GET; the server drops the body.
  const bool head =
      request.method == "HEAD" && endpoint.method == absl::string_view("GET");
  if (request.method != endpoint.method && !head) {
    context.headers.emplace_back("Allow", endpoint.method);
    Refuse(context, 405, absl::StrCat("want ", endpoint.method));
    return false;
  }
  // Without keys a caller is its address.
  context.caller.name = request.peer;
  // Without keys anybody who reaches the port may ask. A page of another site
  // can do that through the user's browser, by a name of its own that resolves
  // to this machine (DNS rebinding); the Host header tells.
  if (!parts_.find_caller && endpoint.route != Route::kHealth &&
      net::IsLoopbackPeer(request.peer) &&
      !net::IsOwnHost(request.Header("Host"), options_.allowed_hosts)) {
    Refuse(context, 403,
           "this server has no keys and does not answer to the name in Host: "
           "see --allowed-hosts");
    return false;
  }
  if (parts_.find_caller && !endpoint.open) {
    std::optional<Caller> caller = CallerOf(request);
    // No hint which keys exist.
    if (!caller.has_value()) {
      RespondError(context,
                   WithCode(absl::UnauthenticatedError(
                                "want one known key, in `Authorization: "
                                "Bearer` or in `x-api-key`"),
                            "invalid_api_key"));
      return false;
    }
    context.caller = *std::move(caller);
  }
  if (endpoint.method != absl::string_view("POST")) return true;
  // A page of another site can send other types without being asked for leave.
  if (!IsJson(request.Header("Content-Type"))) {
    Refuse(context, 415, "want Content-Type: application/json");
    return false;
  }
  // Last: a request with a mistake hears of the mistake even now.
  if (draining_) {
    RespondError(context, StoppingError("the server"));
    return false;
  }
  return true;
}

// --- Generating --------------------------------------------------------------

void GatewayService::Complete(std::shared_ptr<Context> context) {
  auto request = Take(*context, ReadCompletionRequest(context->request.body));
  // Once it is read the body is freed, before memory is taken for what follows.
  context->request.DropBody();
  if (!request.has_value()) return;
  const auto model = Take(*context, ModelNamed(request->model));
  if (!model.has_value()) return;
  auto echoes = Take(*context, Echoes(*request));
  if (!echoes.has_value()) return;
  // -1 or none: the rest of the context, for which the prompt has to be
  // counted.
  if (!request->max_tokens.has_value()) {
    const absl::Status taken = TakeContext(*context, *model, *request);
    if (!taken.ok()) return RespondError(*context, taken);
  }
  StartGeneration(*context, *std::move(request), *model,
                  {"cmpl-", MakeCompletionAnswer}, *std::move(echoes));
}

void GatewayService::Chat(std::shared_ptr<Context> context) {
  Converse(*context, ReadChatRequest(context->request.body),
           {"chatcmpl-", MakeChatAnswer});
}

void GatewayService::Responses(std::shared_ptr<Context> context) {
  Converse(*context, ReadResponsesRequest(context->request.body),
           {"resp_", MakeResponsesAnswer, "input", "max_output_tokens"});
}

void GatewayService::Converse(Context& context, absl::StatusOr<ApiRequest> read,
                              const Form& form) {
  auto request = Take(context, std::move(read));
  context.request.DropBody();
  if (!request.has_value()) return;
  const auto model = Take(context, ModelNamed(request->model));
  if (!model.has_value()) return;
  const absl::Status prepared = PrepareChat(context, form, *model, *request);
  if (!prepared.ok()) {
    RespondError(context, prepared);
    return;
  }
  StartGeneration(context, *std::move(request), *model, form, {});
}

absl::Status GatewayService::PrepareChat(Context& context, const Form& form,
                                         const GeneratorInfo& info,
                                         ApiRequest& request) const {
  // Before the template is rendered: what the rules say about tools may change
  // what it is given.
  if (parts_.chat != nullptr && parts_.chat->has_template()) {
    FORETOKEN_RETURN_IF_ERROR(ConstrainToolCalls(*parts_.chat, request));
    FORETOKEN_RETURN_IF_ERROR(ApplyThinkingWish(*parts_.chat, request));
  }
  // Everything that is still held beside the conversation, for the count of
  // memory.
  FORETOKEN_ASSIGN_OR_RETURN(
      std::vector<TokenId> prompt,
      EncodeChat(
          context, *request.conversation,
          request.repeated.size() + request.generation.constraint.source.size(),
          &request.thinking));
  AllowThinking(*parts_.chat, request);
  // The rendered prompt is all that is needed of it.
  request.conversation.reset();
  return TakePrompt(std::move(prompt), "the messages are", form, info, request);
}

absl::Status GatewayService::TakePrompt(std::vector<TokenId> prompt,
                                        absl::string_view whose,
                                        const Form& form,
                                        const GeneratorInfo& info,
                                        ApiRequest& request) {
  const int64_t room = info.max_positions - static_cast<int64_t>(prompt.size());
  // At least one token of output has to fit.
  if (room < request.max_tokens.value_or(1)) {
    return FieldError(
        room < 1 ? form.input : form.limit,
        absl::StrCat(whose, " ", prompt.size(), " tokens",
                     room < 1 ? ""
                              : absl::StrCat(", and ", *request.max_tokens,
                                             " more are asked for"),
                     ": this model's maximum context length is ",
                     info.max_positions, " tokens"),
        "context_length_exceeded");
  }
  if (!request.max_tokens.has_value()) request.max_tokens = room;
  request.prompts.emplace_back(std::move(prompt));
  return absl::OkStatus();
}

absl::Status GatewayService::TakeContext(Context& context,
                                         const GeneratorInfo& info,
                                         ApiRequest& request) const {
  const Form form = {"", MakeCompletionAnswer, "prompt"};
  if (request.prompts.size() > 1) {
    return Unsupported(form.limit, "-1 is not supported for several prompts");
  }
  Prompt prompt = std::move(request.prompts.front());
  request.prompts.clear();
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (parts_.tokenizer == nullptr) {
      return FieldError(form.limit,
                        "-1 needs a tokenizer, for a prompt of text");
    }
    // The text, what encodes it, and the ids.
    const auto bytes = static_cast<int64_t>(
        text->size() + request.generation.constraint.source.size());
    // Taken before encoding, since that is what costs the memory.
    FORETOKEN_RETURN_IF_ERROR(context.request.memory.Resize(
        bytes * (1 + kEncodingBytesPerTextByte +
                 static_cast<int64_t>(sizeof(TokenId)))));
    prompt = parts_.tokenizer->EncodePrompt(*text);
  }
  return TakePrompt(std::get<std::vector<TokenId>>(std::move(prompt)),
                    "the prompt is", form, info, request);
}

absl::StatusOr<std::vector<std::string>> GatewayService::Echoes(
    const ApiRequest& request) const {
  std::vector<std::string> echoes;
  if (!request.echo) return echoes;
  for (const Prompt& prompt : request.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      echoes.push_back(*text);
      continue;
    }
    if (parts_.tokenizer == nullptr) {
      // Decoded as they will be shown; ids of special tokens have no text.
      return FieldError("echo", "needs a tokenizer, for a prompt of token ids");
    }
    auto text =
        parts_.tokenizer->Decode(std::get<std::vector<TokenId>>(prompt));
    if (!text.ok()) return FieldError("prompt", text.status().message());
    echoes.push_back(*std::move(text));
  }
  return echoes;
}

absl::StatusOr<std::vector<TokenId>> GatewayService::EncodeChat(
    Context& context, const ChatRequest& conversation, size_t other_bytes,
    ThinkingStage* thinking) const {
  if (parts_.chat == nullptr || !parts_.chat->has_template()) {
    return absl::FailedPreconditionError(
        "this model has no chat template: use /v1/completions");
  }
  if (!conversation.tools.empty() &&
      parts_.chat->tool_call_form() == ToolCallForm::kNone) {
    return Unsupported("tools", "this model's chat template knows no tools");
  }
  const auto kept = static_cast<int64_t>(
      conversation.messages.size() + conversation.tools.size() +
      conversation.variables.size() + other_bytes);
  // A template is a program from a file or a client's variables in one: its
  // time is bounded, and checked as it runs.
  const absl::Time deadline = clock_() + options_.max_template_time;
  // Called as the text grows, so that a template cannot use more than the
  // caller's share.
  return parts_.chat->Encode(
      conversation, wall_clock_(),
      [&context, kept](int64_t bytes) {
        return context.request.memory.Resize(kept + bytes);
      },
      [this, &context, deadline]() -> absl::Status {
        if (templates_stopped_) return StoppingError("the server");
        // The client's leaving is noticed between two steps of the template.
        if (context.exchange->gone()) {
          return absl::CancelledError("the client is gone");
        }
        if (clock_() <= deadline) return absl::OkStatus();
        // Not a 408, which clients repeat: it would take as long again.
        return absl::FailedPreconditionError(
            absl::StrCat("the chat template took more than ",
                         absl::FormatDuration(options_.max_template_time),
                         " with these messages and variables"));
      },
      thinking);
}

void GatewayService::AddIgnoredFields(const ApiRequest& request,
                                      HttpHeaders& headers) {
  if (request.ignored_fields.empty()) return;
  headers.emplace_back("X-Foretoken-Ignored-Fields",
                       absl::StrJoin(request.ignored_fields, ", "));
}

void GatewayService::StartGeneration(Context& context, ApiRequest request,
                                     const GeneratorInfo& info,
                                     const Form& form,
                                     std::vector<std::string> echoes) {
  // The largest that this request can need, taken before it starts: a stream
  // must not end for lack of memory.
  const absl::Status fits =
      context.request.memory.Resize(GenerationExchange::Bytes(
          request, std::min(*request.max_tokens, info.max_positions)));
  if (!fits.ok()) {
    RespondError(context, fits);
    return;
  }
  // Each choice is a request of the orchestrator: without this check the quota
  // would refuse some of them in the middle.
  const int64_t quota = context.caller.requests_per_minute;
  if (quota > 0 && request.choices() > quota) {
    RespondError(
        context,
        FieldError(form.count,
                   absl::StrCat(request.choices(), " ", form.choices,
                                " are as many requests, over the ", quota,
                                " that the caller has in a minute"),
                   "invalid_value"));
    return;
  }
  prefixes_.SetScopes(context.request, context.caller, request);
  AddIgnoredFields(request, context.headers);
  GenerationRequest& generation = request.generation;
  generation.max_tokens = *request.max_tokens;
  generation.caller = context.caller;
  generation.deadline = context.deadline;
  generation.request_id = context.request_id;
  generation.traceparent = std::string(context.request.Header("traceparent"));
  AnswerOptions options;
  // An id of its own: request ids are the client's and may repeat.
  options.id = absl::StrCat(form.id_prefix, DrawId());
  options.created = absl::ToUnixSeconds(wall_clock_());
  options.model = info.model;
  options.tokenizer = parts_.tokenizer;
  options.chat = parts_.chat;
  options.echoes = std::move(echoes);
  // From here on the exchange owns everything; the context ends.
  GenerationExchange::Start(
      std::move(request), std::move(context.request.memory), form.make_answer,
      std::move(options), std::move(context.headers), generator_,
      context.exchange, std::move(context.observed), timers_, clock_);
}

// --- Models and texts --------------------------------------------------------

absl::StatusOr<GeneratorInfo> GatewayService::ActiveModel() {
  absl::StatusOr<GeneratorInfo> info = generator_.Info(absl::InfiniteFuture());
  // It is the server's condition, not the request's.
  if (absl::IsFailedPrecondition(info.status())) {
    return absl::UnavailableError(info.status().message());
  }
  FORETOKEN_RETURN_IF_ERROR(info.status());
  const std::string& theirs = info->tokenizer_fingerprint;
  const bool foreign = parts_.tokenizer != nullptr && !theirs.empty() &&
                       parts_.tokenizer->fingerprint_bytes() != theirs;
  // Logged when it changes, not for each request.
  const bool before = foreign_tokenizer_.exchange(foreign);
  if (!foreign) {
    if (before) FORETOKEN_LOG(kInfo, "the model's tokenizer is the right one");
    return info;
  }
  const absl::Status status = absl::UnavailableError(absl::StrCat(
      "this server has another tokenizer than the model ", info->model));
  if (!before) FORETOKEN_LOG(kError, status.message(), ": see --model");
  return status;
}

absl::StatusOr<GeneratorInfo> GatewayService::ModelNamed(
    absl::string_view name) {
  FORETOKEN_ASSIGN_OR_RETURN(GeneratorInfo info, ActiveModel());
  // No name: the one model that there is.
  if (name.empty() || name == info.model) return info;
  return WithCode(
      absl::NotFoundError(absl::StrCat("no such model: ", name,
                                       "; this server has ", info.model)),
      "model_not_found");
}

Json GatewayService::ModelJson(const GeneratorInfo& info) const {
  return {{"id", info.model},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "foretoken"},
          {"max_model_len", info.max_positions},
          {"foretoken",
           {{"modes", info.modes}, {"default_mode", info.default_mode}}}};
}

void GatewayService::Models(std::shared_ptr<Context> context) {
  const auto model = Take(*context, ActiveModel());
  if (!model.has_value()) return;
  RespondJson(*context,
              {{"object", "list"}, {"data", Json::array({ModelJson(*model)})}});
}

void GatewayService::OneModel(std::shared_ptr<Context> context) {
  // Names may hold slashes and other characters that clients encode.
  const auto model = Take(*context, ModelNamed(PercentDecoded(absl::StripPrefix(
                                        context->request.path, kModelsPath))));
  if (model.has_value()) RespondJson(*context, ModelJson(*model));
}

void GatewayService::Tokenize(std::shared_ptr<Context> context) {
  auto request = Take(*context, ReadTokenizeRequest(context->request.body));
  context->request.DropBody();
  if (!request.has_value()) return;
  const auto model = Take(*context, ModelNamed(request->model));
  if (!model.has_value()) return;
  const auto* const text = std::get_if<std::string>(&request->input);
  const auto* const chat = std::get_if<ChatRequest>(&request->input);
  const size_t given = text != nullptr
                           ? text->size()
                           : chat->messages.size() + chat->variables.size();
  // Captured by value: the answer may come after this call has returned, in
  // another thread.
  const auto respond = [this, context, given, max = model->max_positions](
                           absl::StatusOr<std::vector<TokenId>> tokens) {
    const auto taken = Take(*context, std::move(tokens));
    if (!taken.has_value()) return;
    const std::string head =
        absl::StrCat("{\"count\":", taken->size(), ",\"max_model_len\":", max,
                     ",\"tokens\":");
    // Twice the tokens: the message that they come in, or a list's spare room.
    RespondLong(*context, given + 2 * taken->size() * sizeof(TokenId),
                head.size() + JsonTokensBytes(*taken) + 1,
                [&](std::string& body) {
                  body += head;
                  AppendJsonTokens(*taken, body);
                  body += '}';
                });
  };
  if (chat != nullptr) {
    respond(EncodeChat(*context, *chat, /*other_bytes=*/0));
    return;
  }
  generator_.Tokenize(context->caller,
                      std::get<std::string>(std::move(request->input)),
                      request->add_special_tokens, context->deadline, respond);
}

void GatewayService::Detokenize(std::shared_ptr<Context> context) {
  auto request = Take(*context, ReadDetokenizeRequest(context->request.body));
  context->request.DropBody();
  if (!request.has_value()) return;
  if (!Take(*context, ModelNamed(request->model)).has_value()) return;
  const size_t given = request->tokens.size() * sizeof(TokenId);
  const auto respond = [this, context,
                        given](absl::StatusOr<std::string> text) {
    const auto taken = Take(*context, std::move(text));
    if (!taken.has_value()) return;
    constexpr absl::string_view kHead = "{\"prompt\":";
    // Twice the text: the message that it comes in, or a string's spare room.
    RespondLong(*context, given + 2 * taken->size(),
                kHead.size() + JsonStringBytes(*taken) + 1,
                [&](std::string& body) {
                  body.append(kHead.data(), kHead.size());
                  AppendJsonString(*taken, body);
                  body += '}';
                });
  };
  generator_.Detokenize(context->caller, std::move(request->tokens),
                        context->deadline, respond);
}

void GatewayService::Health(std::shared_ptr<Context> context) {
  // A load balancer must stop sending before the server stops answering.
  if (draining_) {
    RespondError(*context, StoppingError("the server"));
  } else if (const absl::Status reason = ActiveModel().status(); !reason.ok()) {
    RespondError(*context, reason);
  } else if (!generator_.Ready()) {
    RespondError(*context, absl::UnavailableError("no model is ready"));
  } else {
    RespondJson(*context, {{"status", "ok"}});
  }
}

void GatewayService::Page(std::shared_ptr<Context> context) {
  if (parts_.page.html.empty()) {
    Refuse(*context, 404, "this server has no page");
    return;
  }
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  // The page runs scripts of its own and talks to its own server only.
  response.headers = {
      {"Content-Security-Policy", parts_.page.content_security_policy},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      // Always asked for again: a new version of the server brings a new page.
      {"Cache-Control", "no-cache"}};
  response.body = parts_.page.html;
  Respond(*context, std::move(response));
}

// --- Answering ---------------------------------------------------------------

template <typename T>
std::optional<T> GatewayService::Take(Context& context,
                                      absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  RespondError(context, value.status());
  return std::nullopt;
}

void GatewayService::Respond(Context& context, HttpResponse response) const {
  context.observed->End(response.status, clock_());
  // Headers collected for this request, whatever the answer is.
  for (auto& header : context.headers) {
    response.headers.push_back(std::move(header));
  }
  context.exchange->Respond(std::move(response));
}

void GatewayService::RespondJson(Context& context, const Json& body) const {
  HttpResponse response;
  response.body = DumpJson(body);
  Respond(context, std::move(response));
}

void GatewayService::RespondLong(
    Context& context, size_t kept, size_t bytes,
    absl::FunctionRef<void(std::string&)> append) const {
  // The body, and its copy in the queue of the connection.
  const absl::Status held =
      context.request.memory.Resize(static_cast<int64_t>(kept + 2 * bytes));
  if (!held.ok()) {
    RespondError(context, held);
    return;
  }
  HttpResponse response;
  response.body.reserve(bytes);
  append(response.body);
  // The body is in the connection's queue until the client has read it, and
  // counts as long.
  context.exchange->HoldUntilSent(std::move(context.request.memory));
  Respond(context, std::move(response));
}

void GatewayService::RespondError(Context& context,
                                  const absl::Status& status) const {
  if (absl::IsCancelled(status) && context.exchange->gone()) {
    context.observed->End(kClientGone, clock_());
  }
  Respond(context, ErrorResponse(status, {}, ErrorFormOf(context.request.path),
                                 context.request_id));
}

void GatewayService::Refuse(Context& context, int http_status,
                            absl::string_view message) const {
  ApiError error;
  error.http_status = http_status;
  error.type = "invalid_request_error";
  error.message = std::string(message);
  HttpResponse response;
  response.status = http_status;
  response.body =
      ErrorBody(error, ErrorFormOf(context.request.path), context.request_id);
  Respond(context, std::move(response));
}

}  // namespace foretoken::gateway
