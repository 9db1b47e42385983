#include "services/verifier/core/engine_verify_sessions.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::verifier {

class EngineVerifySessions::Session final : public VerifySession {
 public:
  Session(const EngineVerifySessions& sessions,
          std::unique_ptr<Loop::Session> session)
      : sessions_(sessions), session_(std::move(session)) {}

  absl::Status Ask(RoundRequest request) override {
    // Here and not in the engine: refused before it takes a place in the
    // engine's queue.
    FORETOKEN_RETURN_IF_ERROR(sessions_.CheckTree(request));
    return session_->Ask(std::move(request));
  }

 private:
  const EngineVerifySessions& sessions_;
  const std::unique_ptr<Loop::Session> session_;
};

// Shared by a session and its compilation; guarded by mu_.
struct EngineVerifySessions::Pending {
  SessionRequest request;                    // until it is compiled
  std::shared_ptr<VerifyListener> listener;  // likewise
  int64_t failures = 0;                      // when it was opened
  bool compiled = false;                     // or failed before
  bool closed = false;
  std::unique_ptr<Loop::Session> session;  // once it is compiled
};

class EngineVerifySessions::PendingSession final : public VerifySession {
 public:
  PendingSession(EngineVerifySessions& sessions,
                 std::shared_ptr<Pending> pending,
                 ConstraintCompiler::Ticket ticket)
      : sessions_(sessions), pending_(std::move(pending)), ticket_(ticket) {}

  ~PendingSession() override {
    // Destroyed without mu_. A caller that is its listener has another
    // reference, or it could not call.
    std::unique_ptr<Loop::Session> session;
    std::shared_ptr<VerifyListener> listener;
    bool compiled = false;
    {
      absl::MutexLock lock(&sessions_.mu_);
      pending_->closed = true;
      compiled = pending_->compiled;
      session = std::move(pending_->session);
      listener = std::move(pending_->listener);
    }
    // Afterwards the compiler may be gone: the loop, which outlives it, may be
    // failing this session.
    if (!compiled) sessions_.compiler_.Cancel(ticket_);
  }

  absl::Status Ask(RoundRequest request) override {
    FORETOKEN_RETURN_IF_ERROR(sessions_.CheckTree(request));
    Loop::Session* session = nullptr;  // lives as long as this object
    {
      absl::MutexLock lock(&sessions_.mu_);
      session = pending_->session.get();
    }
    // The client has sent a round before OnOpened.
    if (session == nullptr) {
      return absl::FailedPreconditionError(
          "round: the session is not open yet");
    }
    return session->Ask(std::move(request));
  }

 private:
  EngineVerifySessions& sessions_;
  const std::shared_ptr<Pending> pending_;
  const ConstraintCompiler::Ticket ticket_;
};

absl::StatusOr<std::unique_ptr<VerifySession>> EngineVerifySessions::Open(
    SessionRequest request, std::shared_ptr<VerifyListener> listener) {
  FORETOKEN_RETURN_IF_ERROR(Check(request));
  if (!request.constraint.empty()) {
    request.grammar = compiler_.Find(request.constraint);
    if (request.grammar == nullptr) {
      return OpenWhenCompiled(std::move(request), std::move(listener));
    }
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<Loop::Session> session,
      loop_.Open(std::move(request), std::move(listener)));
  return std::make_unique<Session>(*this, std::move(session));
}

absl::StatusOr<std::unique_ptr<VerifySession>>
EngineVerifySessions::OpenWhenCompiled(
    SessionRequest request, std::shared_ptr<VerifyListener> listener) {
  ConstraintCompiler::Job job;
  job.caller = request.caller;
  // The engine refuses any other weight.
  if (request.weight >= kMinCallerWeight &&
      request.weight <= kMaxCallerWeight) {
    job.weight = request.weight;
  }
  job.deadline = request.deadline;
  // The engine needs the grammar alone.
  job.constraint = std::exchange(request.constraint, Constraint());
  job.bytes = static_cast<int64_t>(job.constraint.bytes() +
                                   request.tokens.size() * sizeof(TokenId));
  // Shared: a compilation that has ended may find the session closed.
  auto pending = std::make_shared<Pending>();
  {
    absl::MutexLock lock(&mu_);
    pending->request = std::move(request);
    pending->listener = std::move(listener);
    pending->failures = failures_;
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const ConstraintCompiler::Ticket ticket,
      compiler_.Compile(
          std::move(job),
          [this, pending](const ConstraintCompiler::Compiled& compiled) {
            OnCompiled(*pending, compiled);
          }));
  return std::make_unique<PendingSession>(*this, std::move(pending), ticket);
}

void EngineVerifySessions::OnCompiled(
    Pending& pending, const ConstraintCompiler::Compiled& compiled) {
  absl::Status failed = compiled.status();
  std::shared_ptr<VerifyListener> listener;
  {
    // Held while the session is queued: a concurrent FailAll is then either
    // seen here or queued after it, and an Ask after OnOpened finds `session`.
    absl::MutexLock lock(&mu_);
    pending.compiled = true;
    if (pending.closed) return;
    listener = std::move(pending.listener);
    if (pending.failures != failures_) failed = failure_;
    if (failed.ok()) {
      pending.request.grammar = *compiled;
      auto session = loop_.Open(std::move(pending.request), listener);
      failed = session.status();
      if (session.ok()) pending.session = *std::move(session);
    }
  }
  // Without mu_: a listener may close the session, whose destructor takes it.
  if (!failed.ok()) listener->OnFailed(std::move(failed));
}

void EngineVerifySessions::FailAll(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    ++failures_;
    failure_ = status;
    loop_.FailAll(status);
  }
  // After mu_ is released: its `done` calls OnCompiled, which takes it.
  compiler_.FailAll(status);
}

absl::Status EngineVerifySessions::Check(const SessionRequest& request) const {
  const std::string& wanted = request.numerics_fingerprint;
  if (!wanted.empty() && wanted != loop_.numerics_fingerprint()) {
    return absl::AbortedError(absl::StrCat(
        "numerics_fingerprint: the session has another than this verifier's ",
        loop_.numerics_fingerprint()));
  }
  const int64_t most = loop_.model().max_positions;
  if (static_cast<int64_t>(request.tokens.size()) > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("token_ids: ", request.tokens.size(),
                     " tokens, the model's context is ", most));
  }
  return absl::OkStatus();
}

absl::Status EngineVerifySessions::CheckTree(
    const RoundRequest& request) const {
  const int32_t nodes = request.tree.size();
  const int32_t drafts = request.tree.draft_nodes();
  if (drafts > options_.max_tree_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree: ", drafts, " draft nodes, want at most ",
                     options_.max_tree_nodes));
  }
  if (nodes > options_.max_rows_per_session) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree: ", nodes, " nodes, want at most ",
                     options_.max_rows_per_session));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::verifier
