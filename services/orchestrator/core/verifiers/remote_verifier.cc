#include "services/orchestrator/core/verifiers/remote_verifier.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/deadline_slack.h"
#include "common/base/log.h"
#include "common/base/retry_after.h"
#include "common/base/status_macros.h"
#include "common/base/stopping.h"
#include "common/base/timed_wait.h"

namespace foretoken::orchestrator {
namespace {

// True if the verifier failed, not the request.
bool IsLost(const absl::Status& status) {
  // Cancelled without a cancel of ours means that the server shut down;
  // Internal and Unknown come from a connection that dies inside a message.
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsInternal(status) || absl::IsUnknown(status);
}

// Whether only another verifier will do: this one refuses a request that others
// may run.
bool IsRefused(const absl::Status& status, const SessionRequest& session) {
  return absl::IsInvalidArgument(status) ||
         (absl::IsUnimplemented(status) && session.pooling != Pooling::kNone) ||
         (absl::IsFailedPrecondition(status) && !session.constraint.empty());
}

// A verifier ends a session at its deadline, but only between two passes. Wait
// this much longer, and no more in case a pass hangs.
constexpr absl::Duration kGrace = absl::Seconds(1);

// Longest measured passes that a verifier may take to open a session, and the
// multiple of that time while it answers probes.
constexpr double kOpenPasses = 4;
constexpr int kBusyPatience = 6;

}  // namespace

RemoteVerifier::RemoteVerifier(const RemoteVerifierOptions& options,
                               VerifierPool& pool, Clock clock)
    : options_(options), pool_(pool), clock_(std::move(clock)) {}

RemoteVerifier::~RemoteVerifier() { Close(); }

void RemoteVerifier::Close() {
  // The session first: it may still write into the mailbox.
  verify_.reset();
  mailbox_.reset();
  lease_.reset();
  absl::MutexLock lock(&mu_);
  cancellable_.reset();
}

void RemoteVerifier::Cancel() {
  // Failed outside mu_, so that the mailbox's lock is never taken under it.
  std::shared_ptr<VerifyMailbox> mailbox;
  {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
    mailbox = cancellable_;
  }
  if (mailbox != nullptr) {
    mailbox->OnFailed(absl::CancelledError("the request was cancelled"));
  }
}

absl::Status RemoteVerifier::NewMailbox() {
  mailbox_ = std::make_shared<VerifyMailbox>(clock_);
  absl::MutexLock lock(&mu_);
  cancellable_ = mailbox_;
  // Cancel may have come before there was a mailbox to fail.
  if (!cancelled_) return absl::OkStatus();
  return absl::CancelledError("the request was cancelled");
}

absl::Status RemoteVerifier::BackOff(absl::Duration delay) {
  absl::MutexLock lock(&mu_);
  if (AwaitFor(mu_, absl::Condition(&cancelled_), delay)) {
    return absl::CancelledError("the request was cancelled");
  }
  return absl::OkStatus();
}

absl::StatusOr<PrefillResult> RemoteVerifier::OpenOn(
    VerifierPool::Lease lease, absl::Span<const TokenId> text) {
  in_engine_ = false;
  lease_.emplace(std::move(lease));
  // One that knows no constraints would leave it out, and say nothing.
  if (const int32_t version = lease_->grammar_version();
      !session_.constraint.empty() && version != kGrammarVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "constraint: verifier ", lease_->name(), " has version ", version,
        " of the grammar engine, this orchestrator has version ",
        kGrammarVersion));
  }
  FORETOKEN_RETURN_IF_ERROR(NewMailbox());
  // A copy, because the request is needed again if this verifier is lost; the
  // text is the whole committed one, prompt and output.
  SessionRequest request = session_;
  request.tokens.assign(text.begin(), text.end());
  FORETOKEN_ASSIGN_OR_RETURN(
      verify_, lease_->sessions().Open(std::move(request), mailbox_));
  lease_->WatchSession(mailbox_);
  lease_->BeginWait();
  // A session is opened between two passes, long before its prompt is read.
  const absl::Duration patience =
      std::max(options_.connect_timeout, kOpenPasses * lease_->longest_pass());
  const absl::Time start = clock_();
  // A verifier that answers probes is given more time, since its passes may be
  // long; kBusyPatience still bounds the wait.
  const absl::Time last =
      std::min(session_.deadline + kGrace, start + kBusyPatience * patience);
  std::optional<absl::Status> opened;
  absl::Time until = start;
  do {
    until = std::min(last, until + patience);
    opened = mailbox_->AwaitOpened(until);
    // Passes with prompts may take longer than any that was measured.
  } while (!opened.has_value() && until < last && lease_->answers());
  const absl::Duration left = session_.deadline - clock_();
  // A verifier may see the request's deadline pass a moment before this process
  // does; at any other time that is the status of a stream it does not read.
  const bool silent = opened.has_value() ? absl::IsDeadlineExceeded(*opened) &&
                                               left >= kDeadlineSlack
                                         : left > absl::ZeroDuration();
  if (silent) {
    return absl::UnavailableError("the verifier does not open the session");
  }
  if (!opened.has_value()) {
    return absl::DeadlineExceededError("the request's deadline has passed");
  }
  FORETOKEN_RETURN_IF_ERROR(*opened);
  in_engine_ = true;
  FORETOKEN_ASSIGN_OR_RETURN(
      PrefillResult result,
      mailbox_->CollectPrefill(session_.deadline + kGrace));
  lease_->EndWait();
  session_.numerics_fingerprint = mailbox_->fingerprint();
  opened_ = true;
  return result;
}

absl::StatusOr<PrefillResult> RemoteVerifier::OpenAnywhere(
    absl::Span<const TokenId> text) {
  const bool fresh = !opened_;
  const auto in = [this](absl::Duration timeout) {
    return std::min(session_.deadline, clock_() + timeout);
  };
  absl::Time give_up =
      in(fresh ? options_.connect_timeout : options_.failover_timeout);
  absl::Duration backoff = options_.first_backoff;
  // Once for all attempts: the text does not change while a verifier is sought.
  const PrefixKeys keys = KeysOfPrefixes(session_.cache_scope, text);
  std::set<int> unequal;  // verifiers with another fingerprint
  absl::Status aborted;   // the last of their refusals
  while (true) {
    // Starts again with each turn of the outer loop: those that were full or
    // down may have room now, while those with another model stay out.
    std::set<int> asked = unequal;
    absl::Status full;     // the last ResourceExhausted
    absl::Status refused;  // the last IsRefused of a new request
    absl::Status last = fresh && !unequal.empty()
                            ? ModelReplacedError()
                            : absl::UnavailableError("there is no verifier");
    while (std::optional<VerifierPool::Lease> lease =
               pool_.Acquire(asked, keys,
                             /*embeds=*/session_.pooling != Pooling::kNone)) {
      const int id = lease->id();
      asked.insert(id);
      absl::StatusOr<PrefillResult> result = OpenOn(*std::move(lease), text);
      if (result.ok()) return result;
      last = result.status();
      // A cancel of ours says nothing about the verifier.
      const absl::Status ours = BackOff(absl::ZeroDuration());
      // Before Close, which releases the lease.
      if (ours.ok() && IsLost(last)) lease_->ReportDown();
      Close();
      FORETOKEN_RETURN_IF_ERROR(ours);
      if (IsLost(last) && in_engine_) {
        FORETOKEN_RETURN_IF_ERROR(
            NoteLoss(last, id, static_cast<int64_t>(text.size())));
        ++failovers_;
        // Passes may have been spent on it: from the loss it has as long as one
        // with output.
        give_up = in(options_.failover_timeout);
      }
      if (absl::IsAborted(last)) {
        unequal.insert(id);
        aborted = last;
        if (fresh) last = ModelReplacedError();
      } else if (absl::IsResourceExhausted(last)) {
        full = last;
      } else if (IsRefused(last, session_) && fresh) {
        refused = last;  // another may have more room for KV
      } else if (IsRefused(last, session_)) {
        // Another verifier has accepted this request: this one cannot continue
        // it, for example because its context is smaller.
        unequal.insert(id);
        aborted = absl::AbortedError(last.message());
      } else if (!IsLost(last)) {
        return last;
      }
    }
    // All verifiers were asked. If all are full, the client of a new request
    // has to retry; a request with output waits for room.
    if (!fresh && pool_.AllIn(unequal)) return aborted;
    // Those of its model that are down will not come back: an upgrade is over.
    // A new request waits for that, since it can go on with the new model.
    if (!session_.numerics_fingerprint.empty() &&
        pool_.IsReplaced(session_.numerics_fingerprint)) {
      if (fresh) return ModelReplacedError();
      if (!aborted.ok()) return aborted;
      return absl::AbortedError("the verifiers have changed their model");
    }
    if (fresh && !full.ok()) return full;
    // None of them will serve, this request or another.
    if (absl::IsFailedPrecondition(pool_.Info().status())) return last;
    if (!refused.ok()) return refused;
    const absl::Duration hint = RetryAfter(full).value_or(absl::ZeroDuration());
    const absl::Duration delay =
        std::min(std::max(backoff, hint), options_.max_backoff);
    if (clock_() + delay >= give_up) {
      if (give_up == session_.deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("no verifier in time: ", last.message()));
      }
      return aborted.ok() || fresh ? last : aborted;
    }
    FORETOKEN_RETURN_IF_ERROR(BackOff(delay));
    backoff = std::min(backoff * 2, options_.max_backoff);
  }
}

absl::Status RemoteVerifier::NoteLoss(const absl::Status& loss, int id,
                                      int64_t length) {
  // A verifier that stops on purpose says nothing about the request.
  if (IsStopping(loss)) return absl::OkStatus();
  const bool same = std::exchange(lost_, id) == id;
  // Two losses at one length: the request itself may be the cause, so it is not
  // sent to a third verifier.
  if (std::exchange(length_at_loss_, length) != length) return absl::OkStatus();
  if (IsLeft(loss) && same) return loss;
  return absl::AbortedError(
      "two verifiers were lost while they ran this request");
}

absl::StatusOr<PrefillResult> RemoteVerifier::Open(
    SessionRequest request, absl::Span<const TokenId> text) {
  session_ = std::move(request);
  return OpenAnywhere(text);
}

absl::StatusOr<RoundResult> RemoteVerifier::RoundOnce(
    const RoundRequest& request) {
  lease_->BeginWait();
  FORETOKEN_RETURN_IF_ERROR(verify_->Ask(request));
  FORETOKEN_ASSIGN_OR_RETURN(
      RoundResult result, mailbox_->CollectRound(session_.deadline + kGrace));
  lease_->EndWait();
  if (result.length !=
      request.length + static_cast<int64_t>(result.tokens.size())) {
    return absl::UnavailableError(absl::StrCat(
        "the verifier is at ", result.length, " tokens, want ",
        request.length + static_cast<int64_t>(result.tokens.size())));
  }
  return result;
}

absl::StatusOr<RoundResult> RemoteVerifier::Round(
    RoundRequest request, absl::Span<const TokenId> text) {
  if (verify_ == nullptr) {
    return absl::FailedPreconditionError("no session is open");
  }
  while (true) {
    absl::StatusOr<RoundResult> result = RoundOnce(request);
    if (result.ok()) return result;
    // Cancelled by us, or the request's own fault?
    // A cancel that came while the round ran is reported as such; without it, a
    // broken stream would start a failover.
    FORETOKEN_RETURN_IF_ERROR(BackOff(absl::ZeroDuration()));
    if (!IsLost(result.status())) return result.status();
    FORETOKEN_LOG(kWarning, "request ", session_.request_id, ": verifier ",
                  lease_->name(),
                  " lost, replaying: ", result.status().message());
    const int id = lease_->id();
    lease_->ReportDown();
    Close();
    ++failovers_;
    FORETOKEN_RETURN_IF_ERROR(NoteLoss(result.status(), id, request.length));
    FORETOKEN_ASSIGN_OR_RETURN(const PrefillResult replayed,
                               OpenAnywhere(text));
    // The replay has to end where the round began, with nothing new, or the
    // output would fork.
    if (replayed.length != request.length || !replayed.tokens.empty()) {
      return absl::InternalError(absl::StrCat("a replay ended at ",
                                              replayed.length, " tokens, want ",
                                              request.length));
    }
  }
}

}  // namespace foretoken::orchestrator
