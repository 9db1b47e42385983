#include "services/gateway/core/generation_exchange.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/retry_after.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/generation_fields.h"

namespace foretoken::gateway {
namespace {

constexpr int kOk = 200;
// Upper bounds of a token's bytes in a body: its text; its id, text and
// drafter; its log-probability, or that of another token in its place.
constexpr int64_t kTextBytes = 16;
constexpr int64_t kTokenBytes = 96;
// The node of a set that holds it.
constexpr int64_t kToolNameBytes = 128;
constexpr int64_t kLogprobBytes = 128;
// Copies of the output that a stream keeps, at their peak: the last event is
// appended to a queue that holds the three events that end an item. A copy is
// in the items, two are in the event, since its string has doubled, three in
// the queue and six in the string that takes the queue's place.
constexpr int64_t kKeptCopies = 12;
// Output for which a stream has room at first.
constexpr int64_t kFirstKept = 2 << 10;
// Copies of the fields that answers repeat, at their peak: the last event is
// appended to a queue that holds the two events that begin a stream. A copy is
// in the request, two are in the event, two in the queue and four in the string
// that takes the queue's place.
constexpr int64_t kRepeatedCopies = 9;
// Copies of a body that is made of kept parts, at their peak: the parts and the
// body, then the body and its copy in the connection's queue.
constexpr int64_t kBodyCopies = 2;
// State, and what waits for a slow reader.
constexpr int64_t kOtherBytes = 128 << 10;

}  // namespace

// One choice of an exchange, which it keeps alive.
class GenerationExchange::Listener final : public GenerationListener {
 public:
  Listener(std::shared_ptr<GenerationExchange> exchange, int64_t choice)
      : exchange_(std::move(exchange)), choice_(choice) {}

  bool OnDelta(const GenerationDelta& delta) override {
    return exchange_->OnDelta(choice_, delta);
  }
  void OnResult(const GenerationSummary& summary) override {
    exchange_->OnResult(choice_, summary);
  }
  void OnEnd(const absl::Status& status) override {
    exchange_->OnEnd(choice_, status);
  }

 private:
  const std::shared_ptr<GenerationExchange> exchange_;
  const int64_t choice_;
};

int64_t GenerationExchange::Bytes(const ApiRequest& request,
                                  int64_t max_tokens) {
  int64_t prompts = 0;
  for (const Prompt& prompt : request.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    prompts += static_cast<int64_t>(
        text != nullptr
            ? text->size()
            : std::get<std::vector<TokenId>>(prompt).size() * sizeof(TokenId));
  }
  const Constraint& constraint = request.generation.constraint;
  const auto limits = static_cast<int64_t>(
      constraint.bytes() + constraint.choices.size() * sizeof(std::string));
  // As a request and as the message that is made of it.
  int64_t bytes = prompts * (1 + 2 * std::min(request.n, kAtOnce)) +
                  limits * (1 + 2 * std::min(request.choices(), kAtOnce));
  // Sets of strings cost a node for each beside the text.
  for (const ToolNames* names :
       {&request.tool_names, &request.tool_rules.strict}) {
    for (const std::string& name : *names) {
      bytes += kToolNameBytes + static_cast<int64_t>(name.size());
    }
  }
  if (request.echo) {
    // Once for each prompt; with every choice, and once more where they are
    // put together.
    bytes += prompts * (1 + (request.stream ? request.n : 2 * request.n));
  }
  if (!request.stream) {
    // Token by token at their largest, since the body is kept until the end.
    const int64_t token =
        kTextBytes + (request.want_tokens ? kTokenBytes : 0) +
        (request.logprobs
             ? kLogprobBytes * (1 + request.generation.sampling.logprobs)
             : 0);
    bytes += request.choices() * token * max_tokens;
  } else if (!request.repeated.empty()) {  // a stream of responses
    bytes += kKeptCopies * kFirstKept;
  }
  bytes += kRepeatedCopies * static_cast<int64_t>(request.repeated.size());
  bytes += kBodyCopies * request.answer_bytes;
  return bytes + kOtherBytes;
}

void GenerationExchange::Start(ApiRequest request, ByteBudget::Share memory,
                               MakeAnswer make_answer, AnswerOptions options,
                               HttpHeaders headers, Generator& generator,
                               std::shared_ptr<HttpExchange> http,
                               std::unique_ptr<ObservedRequest> observed,
                               RetryTimers& timers, const Clock& clock) {
  // Shared: listeners, the connection and the generator's threads hold it.
  const std::shared_ptr<GenerationExchange> exchange(new GenerationExchange(
      std::move(request), std::move(memory), std::move(headers), generator,
      std::move(http), std::move(observed), timers, clock));
  {
    absl::MutexLock lock(&exchange->mu_);
    exchange->answer_ = make_answer(exchange->request_, std::move(options));
  }
  // False: the client has left already, so Watch will not call OnGone.
  if (!exchange->http_->Watch(exchange)) {
    exchange->OnGone();
    return;
  }
  exchange->StartChoices();
}

GenerationExchange::GenerationExchange(
    ApiRequest request, ByteBudget::Share memory, HttpHeaders headers,
    Generator& generator, std::shared_ptr<HttpExchange> http,
    std::unique_ptr<ObservedRequest> observed, RetryTimers& timers,
    const Clock& clock)
    : request_(std::move(request)),
      headers_(std::move(headers)),
      generator_(generator),
      http_(std::move(http)),
      timers_(timers),
      clock_(clock),
      started_(clock_()),
      memory_(std::move(memory)),
      kept_room_(kFirstKept),
      observed_(std::move(observed)),
      choices_(static_cast<size_t>(request_.choices())),
      at_once_(AtOnce()) {}

int64_t GenerationExchange::AtOnce() const {
  if (request_.generation.pooling == Pooling::kNone) return kAtOnce;
  const int64_t most = request_.generation.caller.max_requests;
  // One is left for the caller's other requests.
  return most > 0 ? std::clamp<int64_t>(most - 1, 1, kAtOnce) : kInputsAtOnce;
}

GenerationRequest GenerationExchange::RequestOf(int64_t choice) const {
  GenerationRequest request = request_.generation;
  const Prompt& prompt =
      request_.prompts[static_cast<size_t>(choice / request_.n)];
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    request.text = *text;
  } else {
    request.prompt = std::get<std::vector<TokenId>>(prompt);
  }
  // Choices of one prompt differ by their seeds alone, derived from the
  // request's.
  request.sampling.seed =
      SeedOfChoice(request.sampling.seed, choice % request_.n);
  // Ids of a server's log must tell the choices apart; the suffix must survive
  // the limit.
  if (request_.choices() > 1) {
    const std::string suffix = absl::StrCat("-", choice);
    request.request_id.resize(std::min(request.request_id.size(),
                                       kMaxRequestIdBytes - suffix.size()));
    request.request_id += suffix;
  }
  return request;
}

// The generator calls no listener from inside Start, Resume and Cancel, so all
// are called under the lock. Prompts are copied without it: they may be large,
// and the threads that end other choices must not wait for that.
void GenerationExchange::StartChoices() {
  while (true) {
    int64_t choice = 0;
    {
      absl::MutexLock lock(&mu_);
      // A few at a time: a request with many choices must not take all slots of
      // its caller.
      if (ended_ || wait_.has_value() || running_ >= at_once_) return;
      if (!postponed_.empty()) {
        choice = postponed_.back();
        postponed_.pop_back();
      } else if (next_ < request_.choices()) {
        choice = next_++;
      } else {
        return;
      }
      ++running_;
    }
    GenerationRequest request = RequestOf(choice);
    absl::MutexLock lock(&mu_);
    // The exchange may have ended while the prompt was copied; running_ no
    // longer matters then.
    if (ended_) return;
    choices_[static_cast<size_t>(choice)].call = generator_.Start(
        std::move(request),
        std::make_shared<Listener>(shared_from_this(), choice));
  }
}

bool GenerationExchange::OnDelta(int64_t choice, const GenerationDelta& delta) {
  absl::MutexLock lock(&mu_);
  // Cancelled choices may still deliver; nothing of it is sent.
  if (ended_) return true;
  observed_->observer().OnDelta();
  // Over all choices: the time until the client sees anything.
  if (first_output_ == absl::InfiniteFuture()) first_output_ = clock_();
  std::string frames;
  answer_->OnDelta(choice, delta, frames);
  const bool room = Send(frames);
  // After sending: what a stream keeps for its last event has grown.
  const absl::Status held = HoldKept();
  if (!held.ok()) {
    Fail(held);
    End(ToApiError(held).http_status);
    return true;
  }
  if (room) return true;
  // OnRoom resumes all that are paused, when the connection has sent enough.
  choices_[static_cast<size_t>(choice)].paused = true;
  observed_->observer().OnPause();
  return false;
}

absl::Status GenerationExchange::HoldKept() {
  const int64_t kept = answer_->kept_bytes();
  if (kept <= kept_room_) return absl::OkStatus();
  // What is held for other purposes stays as it is.
  const int64_t others = memory_.bytes() - kKeptCopies * kept_room_;
  absl::Status grown;
  // Twice the room, so that a long answer asks seldom; else what it needs.
  for (const int64_t room : {std::max(kept, 2 * kept_room_), kept}) {
    grown = memory_.Resize(others + kKeptCopies * room);
    if (!grown.ok()) continue;
    kept_room_ = room;
    return grown;
  }
  // Nothing in the request is wrong, even where no budget could hold all of it.
  return absl::ResourceExhaustedError(grown.message());
}

void GenerationExchange::OnResult(int64_t choice,
                                  const GenerationSummary& summary) {
  absl::MutexLock lock(&mu_);
  if (ended_) return;
  std::string frames;
  answer_->OnResult(choice, summary, frames);
  Send(frames);  // the last of the choice: nothing to pause
}

void GenerationExchange::OnEnd(int64_t choice, const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    --running_;
    // Drops the call, and with it the listener's part of the cycle between the
    // two.
    choices_[static_cast<size_t>(choice)] = {};
    if (ended_) return;
    if (status.ok()) {
      waits_ = 0;
      at_once_ = std::min(at_once_ + 1, AtOnce());
      if (running_ == 0 && postponed_.empty() && next_ == request_.choices()) {
        Succeed();
        End(kOk);
      }
    } else if (!Postpone(choice, status)) {
      const absl::Status told = request_.generation.pooling == Pooling::kNone
                                    ? ConstraintError(status)
                                    : InputError(choice, status);
      Fail(told);
      End(ToApiError(told).http_status);
    }
  }
  // Without mu_, which it takes; another choice may take the place of this one.
  StartChoices();
}

bool GenerationExchange::Postpone(int64_t choice, const absl::Status& status) {
  if (request_.generation.pooling == Pooling::kNone) return false;
  if (!absl::IsResourceExhausted(status) && !absl::IsUnavailable(status)) {
    return false;
  }
  const std::optional<absl::Duration> hint = RetryAfter(status);
  if (!hint.has_value() || *hint > kMaxWait ||
      clock_() + *hint >= request_.generation.deadline) {
    return false;
  }
  // Refusals come in groups: one wait for all that were under way.
  if (!wait_.has_value()) {
    if (waits_ == kMaxWaits) return false;
    ++waits_;
    wait_ = timers_.RunAfter(
        *hint, [exchange = shared_from_this()] { exchange->OnWaited(); });
    if (!wait_.has_value()) return false;  // the server stops
  }
  at_once_ = std::max<int64_t>(1, at_once_ / 2);
  postponed_.push_back(choice);
  return true;
}

void GenerationExchange::OnWaited() {
  {
    absl::MutexLock lock(&mu_);
    wait_.reset();
  }
  StartChoices();
}

bool GenerationExchange::Send(const std::string& frames) {
  if (frames.empty()) return true;
  // The head is sent with the first frame, so that errors before it can still
  // have a status of their own.
  if (!std::exchange(streaming_, true)) {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = headers_;
    head.headers.emplace_back("Cache-Control", "no-store");
    // Proxies that would wait for more than one frame.
    head.headers.emplace_back("X-Accel-Buffering", "no");
    http_->StartStream(std::move(head));
  }
  return http_->Write(frames);
}

void GenerationExchange::Succeed() {
  const absl::Time now = clock_();
  std::string out;
  answer_->Finish({std::min(first_output_, now) - started_, now - started_},
                  out);
  HoldUntilSent(out.size());
  if (request_.stream) {
    Send(out);
    http_->EndStream();
    return;
  }
  // A body that was collected: it has a length, and a status that is known.
  HttpResponse response;
  response.headers = headers_;
  response.body = std::move(out);
  http_->Respond(std::move(response));
}

absl::Status GenerationExchange::ConstraintError(
    const absl::Status& status) const {
  absl::string_view reason = status.message();
  // Other codes are not the constraint's fault: no tokenizer, no memory.
  if (!absl::IsInvalidArgument(status) || request_.constraint_field.empty() ||
      !absl::ConsumePrefix(&reason, "constraint: ")) {
    return status;
  }
  return FieldError(request_.constraint_field, reason, "invalid_value");
}

absl::Status GenerationExchange::InputError(int64_t choice,
                                            const absl::Status& status) const {
  // The model that the inputs are pinned to was replaced meanwhile.
  if (absl::IsFailedPrecondition(status)) {
    return absl::UnavailableError(status.message());
  }
  absl::string_view reason = status.message();
  // The pooling is that of all inputs; everything else that is wrong is theirs.
  if (!absl::IsInvalidArgument(status) ||
      absl::StartsWith(reason, "pooling: ")) {
    return status;
  }
  for (const absl::string_view field : {"prompt: ", "text: ", "token_ids: "}) {
    if (absl::ConsumePrefix(&reason, field)) break;
  }
  return FieldError(
      request_.choices() == 1 ? "input" : absl::StrCat("input[", choice, "]"),
      reason);
}

void GenerationExchange::Fail(const absl::Status& status) {
  // Nothing is sent yet: a plain response with its status.
  if (!streaming_) {
    http_->Respond(ErrorResponse(status, headers_, request_.error_form,
                                 request_.generation.request_id));
    return;
  }
  std::string frames;
  answer_->Fail(ToApiError(status), frames);
  HoldUntilSent(frames.size());
  Send(frames);
  http_->EndStream();
}

void GenerationExchange::HoldUntilSent(size_t bytes) {
  // The end, and its copy in the queue of the connection.
  const int64_t owed = 2 * static_cast<int64_t>(bytes) + kOtherBytes;
  // What the stream no longer needs is given back at once, the rest once it is
  // sent.
  if (owed < memory_.bytes()) (void)memory_.Resize(owed);
  http_->HoldUntilSent(std::move(memory_));
}

void GenerationExchange::End(int status) {
  ended_ = true;
  observed_->End(status, clock_());
  for (Choice& choice : choices_) {
    if (choice.call != nullptr) choice.call->Cancel();
  }
  // The wait keeps the exchange, and with it the request's memory.
  if (wait_.has_value()) timers_.Hurry(*wait_);
}

void GenerationExchange::OnRoom() {
  absl::MutexLock lock(&mu_);
  for (Choice& choice : choices_) {
    if (std::exchange(choice.paused, false)) choice.call->Resume();
  }
}

void GenerationExchange::OnGone() {
  absl::MutexLock lock(&mu_);
  // After a regular end this is only the connection's end.
  if (!ended_) End(kClientGone);
}

HttpResponse ErrorResponse(const absl::Status& status, HttpHeaders headers,
                           ErrorForm form, absl::string_view request_id) {
  const ApiError error = ToApiError(status);
  HttpResponse response;
  response.status = error.http_status;
  response.headers = std::move(headers);
  if (error.http_status == 401) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  if (error.retry_after_ms > 0) {
    // Whole seconds by the standard; clients of OpenAI's API know the other.
    // Rounded up: a client that comes back too early is refused again.
    response.headers.emplace_back(
        "Retry-After", absl::StrCat((error.retry_after_ms + 999) / 1000));
    response.headers.emplace_back("Retry-After-Ms",
                                  absl::StrCat(error.retry_after_ms));
  }
  response.body = ErrorBody(error, form, request_id);
  return response;
}

}  // namespace foretoken::gateway
