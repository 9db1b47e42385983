// GatewayService: OpenAI's API on top of a Generator, with Anthropic's messages
// and llama.cpp's infill as further forms of the same requests. Routes,
// authentication, reading and checking of requests; what generates goes on as a
// GenerationExchange.
//
// Large bodies are read and encoded on threads of their own, and so are those
// with a conversation, whose chat template may take its time: they do not hold
// up the streams of others. Callers share these threads in turn. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_GATEWAY_SERVICE_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_GATEWAY_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/fair_worker_pool.h"
#include "common/base/json_fwd.h"
#include "common/generation/generation.h"
#include "common/generation/generator.h"
#include "common/text/chat/model_chat.h"
#include "common/text/tokenizer.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/gateway_observer.h"
#include "services/gateway/core/generation_exchange.h"
#include "services/gateway/core/http.h"
#include "services/gateway/core/prefix_sharing.h"
#include "services/gateway/core/retry_timers.h"

namespace foretoken::gateway {

struct InfillRequest;

// Finds the caller with this `Authorization` header; nullopt: unknown.
using FindCaller =
    std::function<std::optional<Caller>(absl::string_view authorization)>;

struct StaticPage {
  std::string html;  // empty: none
  std::string content_security_policy;
};

struct GatewayOptions {
  absl::Duration max_request_time = absl::Hours(1);
  // For the chat template of one request.
  absl::Duration max_template_time = absl::Seconds(2);
  // Sites whose pages may call this server from a browser; "*": all.
  std::vector<std::string> cors_origins;
  // Names under which clients on this machine may call a server without keys,
  // beyond localhost and addresses; "*": all (host_names.h).
  std::vector<std::string> allowed_hosts;
  // Requests that name no cache scope share prefix pages; without keys only
  // those of a single user (prefix_sharing.h).
  bool prefix_sharing = true;
  bool single_user = false;
  // Threads for large bodies and conversations; two callers with endless work
  // leave one of four to others.
  int32_t workers = 4;
  int32_t max_waiting_bodies = 1024;  // for such a thread
};

// Surroundings of a GatewayService. All pointers may be null and must outlive
// it.
struct GatewayParts {
  const Tokenizer* tokenizer = nullptr;  // for the texts of tokens
  const ModelChat* chat = nullptr;       // null: no chat
  FindCaller find_caller;                // null: everybody may call
  StaticPage page;
};

class GatewayService final : public HttpHandler {
 public:
  // `wall_clock` dates answers. References must outlive the service.
  GatewayService(const GatewayOptions& options, GatewayParts parts,
                 Generator& generator, GatewayObserver& observer,
                 Clock wall_clock, Clock clock = MonotonicClock());

  void Handle(HttpRequest request,
              std::shared_ptr<HttpExchange> exchange) override;
  // With keys, the caller's name: callers may share an address.
  std::optional<std::string> BodyOwner(const HttpRequest& head) const override;
  // Those that let a page of another site read why it was refused.
  HttpHeaders HeadersOfRefusal(const HttpRequest& head) const override;
  std::string BodyOfRefusal(const HttpRequest& head,
                            const ApiError& error) const override;

  // Refuses new work from now on; /health says so.
  void BeginDrain() { draining_ = true; }
  // Ends requests whose template is being rendered, now and from now on.
  void StopTemplates() { templates_stopped_ = true; }
  // Does that, waits for the bodies that are being read, and repeats nothing
  // more. What the generator still has to answer comes later: the service must
  // outlive that. Handle is not called any more.
  void Stop();
  // Returns once no body waits or is being read.
  void AwaitBodies() { workers_->WaitUntilIdle(); }

 private:
  // One request until it is answered or has become an exchange.
  struct Context {
    HttpRequest request;
    std::shared_ptr<HttpExchange> exchange;
    absl::Time deadline;  // waiting for its turn included
    std::unique_ptr<ObservedRequest> observed;
    HttpHeaders headers;  // of the answer
    std::string request_id;
    Caller caller;
  };
  // Differences between the endpoints that generate.
  struct Form {
    const char* id_prefix;
    GenerationExchange::MakeAnswer make_answer;
    // Names of the fields with the conversation and with its limit.
    const char* input = "messages";
    const char* limit = "max_tokens";
    // The field that says how many choices there are.
    const char* count = "n";
    const char* choices = "choices";  // as errors name them
  };
  using Handler = void (GatewayService::*)(std::shared_ptr<Context>);
  struct Endpoint {
    const char* method;
    const char* path;
    Route route;
    Handler handler;
    bool open = false;  // needs no key
    // May render a chat template, which is a program of the model's files.
    bool renders = false;
  };
  static const std::vector<Endpoint>& Endpoints();

  // By its own header or a drawn id, of which the answer's headers tell.
  static void NameRequest(Context& context);
  void AddCorsHeaders(Context& context) const;
  // The caller with the request's key; only where there are keys.
  std::optional<Caller> CallerOf(const HttpRequest& head) const;
  // False, with the request answered, if it may not go on.
  bool Admit(Context& context, const Endpoint& endpoint);

  // Calls the handler on a thread for bodies, when it is the caller's turn.
  void HandleInTurn(std::shared_ptr<Context> context, Handler handler);

  void Complete(std::shared_ptr<Context> context);
  void Chat(std::shared_ptr<Context> context);
  void Responses(std::shared_ptr<Context> context);
  void Messages(std::shared_ptr<Context> context);
  void CountTokens(std::shared_ptr<Context> context);
  void Infill(std::shared_ptr<Context> context);
  void Embeddings(std::shared_ptr<Context> context);
  void Models(std::shared_ptr<Context> context);
  void OneModel(std::shared_ptr<Context> context);
  void Tokenize(std::shared_ptr<Context> context);
  void Detokenize(std::shared_ptr<Context> context);
  void Health(std::shared_ptr<Context> context);
  void Page(std::shared_ptr<Context> context);

  // Answers with the error and returns nullopt if `value` is one.
  template <typename T>
  std::optional<T> Take(Context& context, absl::StatusOr<T> value);
  // The model, if its tokenizer is this server's: with another, prompts and
  // texts would be wrong without any error. Logs when that changes.
  absl::StatusOr<GeneratorInfo> ActiveModel();
  // The same, if it has the name that the request gives.
  absl::StatusOr<GeneratorInfo> ModelNamed(absl::string_view name);
  // Takes the memory for it from the context's share, besides that of the
  // conversation and `other_bytes` of the request. `thinking`: see
  // ModelChat::Encode.
  absl::StatusOr<std::vector<TokenId>> EncodeChat(
      Context& context, const ChatRequest& conversation, size_t other_bytes,
      ThinkingStage* thinking = nullptr) const;
  absl::StatusOr<std::vector<std::string>> Echoes(
      const ApiRequest& request) const;
  // Goes on with the conversation that was read.
  void Converse(Context& context, absl::StatusOr<ApiRequest> read,
                const Form& form);
  absl::Status PrepareChat(Context& context, const Form& form,
                           const GeneratorInfo& info,
                           ApiRequest& request) const;
  absl::Status PrepareInfill(Context& context, const GeneratorInfo& info,
                             const Form& form, InfillRequest& read) const;
  // Makes `prompt` that of the request, whose max_tokens is set if it is not,
  // if both fit into the model's context. `whose`: "the messages are".
  static absl::Status TakePrompt(std::vector<TokenId> prompt,
                                 absl::string_view whose, const Form& form,
                                 const GeneratorInfo& info,
                                 ApiRequest& request);
  // Encodes the prompt of a completion whose answer may go on to the end of the
  // context, and sets its max_tokens.
  absl::Status TakeContext(Context& context, const GeneratorInfo& info,
                           ApiRequest& request) const;
  // False, with the request answered, if its version is not served.
  bool CheckVersion(Context& context) const;
  // Names the fields that were taken without effect.
  static void AddIgnoredFields(const ApiRequest& request, HttpHeaders& headers);
  void StartGeneration(Context& context, ApiRequest request,
                       const GeneratorInfo& info, const Form& form,
                       std::vector<std::string> echoes);
  Json ModelJson(const GeneratorInfo& info) const;

  void Respond(Context& context, HttpResponse response) const;
  void RespondJson(Context& context, const Json& body) const;
  // Answers with the body of `bytes` that `append` writes. Takes the memory for
  // it and for the `kept` bytes that it is made of from the context's share.
  void RespondLong(Context& context, size_t kept, size_t bytes,
                   absl::FunctionRef<void(std::string&)> append) const;
  void RespondError(Context& context, const absl::Status& status) const;
  // An error whose HTTP status no Status has.
  void Refuse(Context& context, int http_status,
              absl::string_view message) const;

  const GatewayOptions options_;
  const PrefixSharing prefixes_;
  const GatewayParts parts_;
  Generator& generator_;
  GatewayObserver& observer_;
  const Clock wall_clock_;
  const Clock clock_;
  const int64_t created_;  // Unix time of the start
  std::atomic<bool> draining_{false};
  std::atomic<bool> templates_stopped_{false};
  std::atomic<bool> foreign_tokenizer_{false};  // when it was last compared
  RetryTimers timers_;
  std::unique_ptr<FairWorkerPool> workers_;  // last: uses all of the above
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_GATEWAY_SERVICE_H_
