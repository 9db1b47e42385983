#include "services/orchestrator/server.h"

#include <limits>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/convert_generation.h"
#include "common/rpc/request_stream.h"
#include "common/rpc/status.h"
#include "services/orchestrator/core/admission/request_memory.h"

namespace foretoken::orchestrator {
namespace {

// The verifiers of a pool.
class RemoteTarget final : public Target {
 public:
  RemoteTarget(const RemoteVerifierOptions& options, VerifierPool& pool)
      : options_(options), pool_(pool) {}

  absl::StatusOr<TargetInfo> Info() const override {
    FORETOKEN_ASSIGN_OR_RETURN(VerifierInfo info, pool_.Info());
    TargetInfo target;
    target.vocab_size = info.vocab_size;
    target.max_positions = info.max_positions;
    target.eos_tokens = std::move(info.end_tokens);
    target.max_rows_per_session = info.max_rows_per_session;
    target.embedding_size = info.embedding_size;
    target.costs = PassCosts(std::move(info.pass_costs));
    target.numerics_fingerprint = std::move(info.numerics_fingerprint);
    target.tokenizer_fingerprint = std::move(info.tokenizer_fingerprint);
    target.model = std::move(info.model);
    return target;
  }

  // One verifier is enough: requests that it cannot take are queued.
  bool Ready() const override { return pool_.any_up(); }

  std::unique_ptr<Verifier> NewVerifier() override {
    return std::make_unique<RemoteVerifier>(options_, pool_);
  }

 private:
  const RemoteVerifierOptions options_;
  VerifierPool& pool_;
};

int64_t LargestMessage(const GenerationOptions& options) {
  return MaxWireBytes(options.max_prompt_bytes,
                      options.grammars.max_constraint_bytes);
}

struct CallContext {
  GenerationService& generation;
  Caller caller;
  std::string traceparent;  // empty if the call has none
};

template <typename Request, typename Response>
class CallStream : public rpc::RequestStream<Request, Response> {
 public:
  using Message = Response;

  // The stream charges the request's bytes to the caller as they arrive, before
  // it is parsed, so that many large messages cannot use more than the budget.
  CallStream(rpc::StreamServer& server, CallContext call)
      : CallStream::RequestStream(
            server, call.generation.memory(), call.generation.silent_calls(),
            call.caller.name, LargestMessage(call.generation.options())),
        call_context_(std::move(call)) {}

 protected:
  GenerationService& generation() const { return call_context_.generation; }
  const Caller& caller() const { return call_context_.caller; }
  const CallContext& call_context() const { return call_context_; }

  // Keeps the call from finishing until Finish; `work` is cancelled with it,
  // and its memory held as long.
  void AwaitEnd(std::shared_ptr<PendingCall> work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    work_ = std::move(work);
    running_ = true;
  }
  const std::shared_ptr<PendingCall>& work() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return work_;
  }
  // Ends the call after its answers.
  void Finish(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    running_ = false;
    this->EndAfterSends(status);
    // The peer may have closed the stream while the work still ran; CanFinish
    // was false then, and no further event would come.
    this->Continue();  // it may have ended before
  }
  // Ends a call that GenerationService has not seen. One that holds no memory
  // ends at once.
  void Refuse(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    Refusals& refusals = generation().refusals();
    if (!this->charged()) {
      Finish(refusals.WithHint(status, caller()));
      return;
    }
    // A refused request keeps its slot among the refusals but not its memory:
    // refused callers that wait for their hint must not hold memory that
    // admitted ones need.
    this->TakeRequestCharge().Release();
    // `self` keeps the stream alive: the refusal may end after the client has
    // left.
    const auto ticket = refusals.End(
        caller(), this->deadline(), status,
        [self = this->shared_from_this(), this](const absl::Status& hinted) {
          absl::MutexLock lock(&this->mu_);
          Finish(hinted);
        });
    AwaitEnd(std::make_shared<HeldRefusal>(refusals, ticket));
  }

 private:
  class HeldRefusal final : public PendingCall {
   public:
    HeldRefusal(Refusals& refusals, Refusals::Ticket ticket)
        : refusals_(refusals), ticket_(ticket) {}
    void Cancel() override { refusals_.Hurry(ticket_); }

   private:
    Refusals& refusals_;
    const Refusals::Ticket ticket_;
  };

  void OnClosed(const absl::Status&) final
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    // The work's end calls Finish; only then may the stream be deleted, since
    // the work still refers to it.
    if (running_) work_->Cancel();
  }
  bool CanFinish() const final ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return !running_;
  }
  std::string LogName(const absl::Status&) const final { return ""; }

  const CallContext call_context_;
  std::shared_ptr<PendingCall> work_ ABSL_GUARDED_BY(this->mu_);
  bool running_ ABSL_GUARDED_BY(this->mu_) = false;
};

// One Generate call. A slow reader delays only its own request; a cancelled
// call cancels its request.
class GenerateStream final
    : public CallStream<v1::GenerateRequest, v1::GenerateResponse>,
      public GenerationListener {
 public:
  using CallStream::CallStream;

  bool OnDelta(const GenerationDelta& delta) override {
    v1::GenerateResponse response;
    // The message is built outside the lock, which the thread that sends also
    // takes.
    rpc::ToProto(delta, response.mutable_delta());
    absl::MutexLock lock(&mu_);
    Send(std::move(response));
    // Under the lock in which OnSent tests it: a reader that drains the stream
    // between the two would otherwise leave the request paused for good.
    paused_ = !HasRoom();
    return !paused_;
  }
  void OnResult(const GenerationSummary& summary) override {
    v1::GenerateResponse response;
    rpc::ToProto(summary, response.mutable_result());
    absl::MutexLock lock(&mu_);
    Send(std::move(response));
  }
  void OnEnd(const absl::Status& status) override {
    absl::MutexLock lock(&mu_);
    Finish(status);
  }

 private:
  // Messages that may wait for a slow reader.
  static constexpr size_t kMaxWaiting = 64;

  void OnRequest(absl::StatusOr<v1::GenerateRequest> proto) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    absl::StatusOr<GenerationRequest> request =
        proto.ok() ? rpc::FromProto(*std::move(proto)) : proto.status();
    if (!request.ok()) {
      generation().CountRefused(caller(), request.status());
      Refuse(request.status());
      return;
    }
    request->caller = caller();
    request->deadline = deadline();
    request->traceparent = call_context().traceparent;
    // The charge moves with the request: its memory is released when the
    // request ends, not when the stream does.
    // Shares ownership with the stream: it lives until the listener's last
    // call, whatever the client does.
    call_ = generation().Start(
        *std::move(request), TakeRequestCharge(),
        std::shared_ptr<GenerationListener>(shared_from_this(), this));
    AwaitEnd(call_);
  }
  void OnSent() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (paused_ && HasRoom()) {
      paused_ = false;
      // Safe under mu_: Resume only sets a flag under the request's own lock
      // and calls no listener.
      call_->Resume();
    }
  }
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // Both bounds: many small deltas cost overhead per message, few large ones
    // (log-probabilities) cost bytes.
    return unsent() < kMaxWaiting && unsent_bytes() < kUnsentBytes;
  }

  std::shared_ptr<GenerationCall> call_ ABSL_GUARDED_BY(mu_);
  bool paused_ ABSL_GUARDED_BY(mu_) = false;
};

class TokenizeStream final
    : public CallStream<v1::TokenizeRequest, v1::TokenizeResponse> {
 public:
  using CallStream::CallStream;

 private:
  void OnRequest(absl::StatusOr<v1::TokenizeRequest> request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!request.ok()) {
      Refuse(request.status());
      return;
    }
    AwaitEnd(generation().Tokenize(
        caller(), std::move(*request->mutable_text()),
        request->add_special_tokens(), deadline(), TakeRequestCharge(),
        [self = shared_from_this(),
         this](const absl::StatusOr<std::vector<TokenId>>& ids) {
          v1::TokenizeResponse response;
          if (ids.ok()) {
            response.mutable_token_ids()->Add(ids->begin(), ids->end());
          }
          // Only the sending needs the lock; a large answer is copied without
          // it.
          absl::MutexLock lock(&mu_);
          if (ids.ok()) Send(std::move(response));
          Finish(ids.status());
        }));
  }
};

class DetokenizeStream final
    : public CallStream<v1::DetokenizeRequest, v1::DetokenizeResponse> {
 public:
  using CallStream::CallStream;

 private:
  void OnRequest(absl::StatusOr<v1::DetokenizeRequest> request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!request.ok()) {
      Refuse(request.status());
      return;
    }
    AwaitEnd(generation().Detokenize(
        caller(), rpc::Values(request->token_ids()), deadline(),
        TakeRequestCharge(),
        [self = shared_from_this(), this](absl::StatusOr<std::string> text) {
          v1::DetokenizeResponse response;
          if (text.ok()) *response.mutable_text() = *std::move(text);
          absl::MutexLock lock(&mu_);
          if (text.ok()) Send(std::move(response));
          Finish(text.status());
        }));
  }
};

class ModelInfoStream final
    : public CallStream<v1::GetModelInfoRequest, v1::GetModelInfoResponse> {
 public:
  using CallStream::CallStream;

 private:
  void OnRequest(absl::StatusOr<v1::GetModelInfoRequest> request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!request.ok()) {
      Refuse(request.status());
      return;
    }
    // Info waits for nothing here: it answers from the latest probes of the
    // verifiers. No work is left that could be cancelled.
    absl::StatusOr<GeneratorInfo> info = generation().Info(deadline());
    if (info.ok()) {
      v1::GetModelInfoResponse response;
      rpc::ToProto(*info, &response);
      rpc::ToProto(generation().default_mode(),
                   response.mutable_default_speculation())
          .IgnoreError();  // a mode of requests has its message
      Send(std::move(response));
    }
    Finish(info.status());
  }
};

// GenerationService admits requests; the streams have no limit of their own.
rpc::StreamOptions Unlimited(const OrchestratorServerOptions& server) {
  rpc::StreamOptions options;
  options.max_streams = std::numeric_limits<int32_t>::max();
  options.stall_timeout = server.stall_timeout;
  options.retry_after = server.retry_after;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OrchestratorServer>> OrchestratorServer::Create(
    const OrchestratorServerOptions& options,
    std::unique_ptr<VerifierPool> pool,
    std::shared_ptr<const Tokenizer> tokenizer, metrics::Registry& registry) {
  const std::string fingerprint =
      tokenizer == nullptr ? "" : tokenizer->fingerprint_bytes();
  std::unique_ptr<OrchestratorServer> server(
      new OrchestratorServer(options, std::move(pool), registry));
  const auto breaker_gauge = [&registry](const std::string& service) {
    // Looked up once; the breaker then only sets the gauge, which is
    // thread-safe.
    return [&gauge = registry.GetGauge(metrics::kBreakerState, service)](
               CircuitBreaker::State state) {
      gauge.Set(static_cast<double>(state));
    };
  };
  // A copy, because the exporter of spans is known only after the options.
  GenerationOptions generation = options;
  if (!options.otlp_endpoint.empty()) {
    FORETOKEN_RETURN_IF_ERROR(server->StartTracing(options.otlp_endpoint));
    generation.spans = server->spans_.get();
  }
  auto drafters = std::make_unique<DraftServices>(options.drafters, fingerprint,
                                                  breaker_gauge);
  // Owned by the generation service, which lives as long as the server;
  // discovery needs to reach it.
  server->drafters_ = drafters.get();
  FORETOKEN_ASSIGN_OR_RETURN(
      server->generation_,
      GenerationService::Create(
          generation,
          std::make_unique<RemoteTarget>(options.verifier, *server->pool_),
          std::move(drafters), std::move(tokenizer), server->metrics_));
  return server;
}

OrchestratorServer::OrchestratorServer(const OrchestratorServerOptions& options,
                                       std::unique_ptr<VerifierPool> pool,
                                       metrics::Registry& registry)
    : pool_(std::move(pool)),
      metrics_(registry),
      spans_exported_(registry.GetCounter(metrics::kTraceSpans, "exported")),
      spans_dropped_(registry.GetCounter(metrics::kTraceSpans, "dropped")),
      streams_("the orchestrator", Unlimited(options), nullptr) {
  // In the order of the contract.
  Serve<GenerateStream>(0);
  Serve<TokenizeStream>(1);
  Serve<DetokenizeStream>(2);
  Serve<ModelInfoStream>(3);
}

OrchestratorServer::~OrchestratorServer() = default;

absl::Status OrchestratorServer::StartTracing(const std::string& endpoint) {
  OtlpOptions options;
  FORETOKEN_ASSIGN_OR_RETURN(options.endpoint, ParseOtlpEndpoint(endpoint));
  options.service = "foretoken-orchestrator";
  spans_ = std::make_unique<OtlpExporter>(
      std::move(options), [this](bool exported, int64_t spans) {
        (exported ? spans_exported_ : spans_dropped_)
            .Increment(static_cast<double>(spans));
      });
  return absl::OkStatus();
}

template <typename Stream>
void OrchestratorServer::Serve(int index) {
  // Requests come as raw bytes, so that their memory is counted before they are
  // parsed; answers are messages.
  using Handler = grpc::internal::CallbackBidiHandler<grpc::ByteBuffer,
                                                      typename Stream::Message>;
  const auto start = [this](grpc::CallbackServerContext* context) {
    // Identity and trace are read from the call's metadata at its start; the
    // context ends with the call.
    return streams_.Start<Stream>(
        context,
        CallContext{*generation_, rpc::CallerOf(*context, callers_.get()),
                    rpc::TraceparentOf(*context)});
  };
  // The first makes the method bidirectional; both take a handler.
  MarkMethodStreamed(index, new Handler(start));
  MarkMethodRawCallback(index, new Handler(start));
}

int64_t OrchestratorServer::receive_bytes() const {
  // What may be in the course of being received, out of the budget that all
  // requests share.
  return DivideMemory(generation_->options().memory_budget).receiving;
}

int64_t OrchestratorServer::max_request_bytes() const {
  return LargestMessage(generation_->options());
}

void OrchestratorServer::BeginDrain() {
  // In this order, a message that comes in between meets a service that admits
  // nothing.
  generation_->BeginDrain();
  streams_.BeginDrain();  // those that run linger
}

bool OrchestratorServer::Idle() const { return generation_->Idle(); }

void OrchestratorServer::EndAll() { generation_->EndAll(); }

}  // namespace foretoken::orchestrator
