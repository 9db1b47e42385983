// GenerationExchange: one HTTP request to generate, from its admission to the
// end of its answer.
//
// Every choice is a request of its own to the generator, a few at a time. The
// status of the answer is that of the first choice that has output or fails:
// until then nothing is sent. A client that reads slowly pauses the choices;
// one that goes away cancels them.
//
// An embedding's choices are its inputs. One that is refused with a retry hint
// is sent again after it, within the request's deadline, so that the vectors of
// the others are not lost; fewer are under way after a refusal.
//
// Kept alive by the choices under way. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_GENERATION_EXCHANGE_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_GENERATION_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/byte_budget.h"
#include "common/base/clock.h"
#include "common/generation/generator.h"
#include "services/gateway/core/answer.h"
#include "services/gateway/core/api_request.h"
#include "services/gateway/core/error_forms.h"
#include "services/gateway/core/gateway_observer.h"
#include "services/gateway/core/http.h"
#include "services/gateway/core/retry_timers.h"

namespace foretoken::gateway {

class GenerationExchange final
    : public HttpObserver,
      public std::enable_shared_from_this<GenerationExchange> {
 public:
  using MakeAnswer = std::unique_ptr<Answer> (*)(const ApiRequest& request,
                                                 AnswerOptions options);
  // Choices under way at the same time; the others follow as these end.
  static constexpr int64_t kAtOnce = 32;
  // The same for embeddings of a caller whose own limit is not known.
  static constexpr int64_t kInputsAtOnce = 8;
  // An input is given up after this many waits without an answer to any other,
  // and where the hint is longer than this: quotas fill in a minute.
  static constexpr int kMaxWaits = 16;
  static constexpr absl::Duration kMaxWait = absl::Minutes(1);

  // `request.prompts` holds one prompt or more; `memory` is what Bytes says.
  // Begins at once, unless the client is gone already; `generator` and `timers`
  // must outlive the exchange.
  static void Start(ApiRequest request, ByteBudget::Share memory,
                    MakeAnswer make_answer, AnswerOptions options,
                    HttpHeaders headers, Generator& generator,
                    std::shared_ptr<HttpExchange> http,
                    std::unique_ptr<ObservedRequest> observed,
                    RetryTimers& timers, const Clock& clock);

  // Memory of the exchange until its end: prompts, with a copy for each choice
  // under way, and the answer if it is one body. A stream that keeps its output
  // begins with room for little of it; its share grows with the output, and the
  // request fails with ResourceExhausted when the budget has no room.
  static int64_t Bytes(const ApiRequest& request, int64_t max_tokens);

  void OnRoom() override ABSL_LOCKS_EXCLUDED(mu_);
  void OnGone() override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Listener;
  struct Choice {
    std::shared_ptr<GenerationCall> call;
    bool paused = false;
  };

  GenerationExchange(ApiRequest request, ByteBudget::Share memory,
                     HttpHeaders headers, Generator& generator,
                     std::shared_ptr<HttpExchange> http,
                     std::unique_ptr<ObservedRequest> observed,
                     RetryTimers& timers, const Clock& clock);

  // Choices that may be under way.
  int64_t AtOnce() const;
  // Starts choices up to at_once_ under way.
  void StartChoices() ABSL_LOCKS_EXCLUDED(mu_);
  GenerationRequest RequestOf(int64_t choice) const;

  bool OnDelta(int64_t choice, const GenerationDelta& delta)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnResult(int64_t choice, const GenerationSummary& summary)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnEnd(int64_t choice, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Has an input that ended with `status` sent again after its retry hint.
  // False: it has none, or it does not help.
  bool Postpone(int64_t choice, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnWaited() ABSL_LOCKS_EXCLUDED(mu_);

  // Grows the share to hold what the answer keeps.
  absl::Status HoldKept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends what a stream has to send, its head first. False: pause.
  bool Send(const std::string& frames) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the share, of which the last `bytes` of the answer need only a part,
  // to the connection. Before the end of the answer.
  void HoldUntilSent(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Succeed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Says what is wrong with a constraint by the field that the request has it
  // in; other errors are left as they are.
  absl::Status ConstraintError(const absl::Status& status) const;
  // The same for an embedding, whose prompts are the field `input`.
  absl::Status InputError(int64_t choice, const absl::Status& status) const;
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Cancels the choices that are left.
  void End(int status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ApiRequest request_;
  const HttpHeaders headers_;
  Generator& generator_;
  const std::shared_ptr<HttpExchange> http_;
  RetryTimers& timers_;
  const Clock clock_;
  const absl::Time started_;

  absl::Mutex mu_;
  ByteBudget::Share memory_ ABSL_GUARDED_BY(mu_);
  // Bytes that the answer may keep within the share.
  int64_t kept_room_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ObservedRequest> observed_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Answer> answer_ ABSL_GUARDED_BY(mu_);
  std::vector<Choice> choices_ ABSL_GUARDED_BY(mu_);
  absl::Time first_output_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;  // choice to start
  int64_t running_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t at_once_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> postponed_ ABSL_GUARDED_BY(mu_);
  // Set while nothing is started.
  std::optional<RetryTimers::Ticket> wait_ ABSL_GUARDED_BY(mu_);
  int waits_ ABSL_GUARDED_BY(mu_) = 0;           // since the last success
  bool streaming_ ABSL_GUARDED_BY(mu_) = false;  // the head is sent
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

// The answer to a request that failed.
HttpResponse ErrorResponse(const absl::Status& status, HttpHeaders headers,
                           ErrorForm form = ErrorForm::kOpenAi,
                           absl::string_view request_id = "");

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_GENERATION_EXCHANGE_H_
