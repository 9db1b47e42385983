#include "services/gateway/adapters/watched_generator.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/timed_wait.h"

namespace foretoken::gateway {
namespace {

// Deadline of a call that asks for the model's properties.
constexpr absl::Duration kModelTime = absl::Seconds(5);

// A principal that is not a valid name. An orchestrator that lets the gateway
// speak for its callers refuses it; any other ignores it like every principal.
constexpr char kInvalidPrincipal[] = "not a name";

absl::Status NoAnswer() {
  return absl::UnavailableError("the orchestrator has not answered yet");
}
absl::Status NoAnswerAnyMore() {
  return absl::UnavailableError(
      "the orchestrator no longer answers what model it serves");
}

}  // namespace

WatchedGenerator::WatchedGenerator(
    std::unique_ptr<rpc::GenerationClient> client, bool with_principals,
    const ModelTimes& times, std::unique_ptr<rpc::GenerationClient> unwatched)
    : times_(times),
      with_principals_(with_principals),
      client_(std::move(client)),
      unwatched_(std::move(unwatched)) {
  if (with_principals) {
    absl::MutexLock lock(&mu_);
    principals_ = NoAnswer();
  }
  refresher_ = std::thread([this] { Refresh(); });
}

WatchedGenerator::~WatchedGenerator() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  refresher_.join();
}

void WatchedGenerator::Refresh() {
  while (true) {
    AskForModel();
    AskForReason();
    CheckPrincipals();
    absl::MutexLock lock(&mu_);
    if (AwaitFor(mu_, absl::Condition(&stopping_), times_.refresh)) return;
  }
}

void WatchedGenerator::AskForModel() {
  const absl::Time now = MonotonicNow();
  {
    absl::MutexLock lock(&mu_);
    if (asking_ || now < ask_again_) return;
    asking_ = true;
    ask_again_ = now + times_.refresh;
  }
  client_->AskInfo({.wait_for_ready = true}, now + kModelTime,
                   [this](absl::StatusOr<GeneratorInfo> info) {
                     absl::MutexLock lock(&mu_);
                     asking_ = false;
                     if (!info.ok()) {
                       ask_again_ = absl::InfinitePast();
                       return;
                     }
                     reason_ = absl::OkStatus();
                     info_ = *std::move(info);
                     expires_ = MonotonicNow() + times_.expiry;
                   });
}

void WatchedGenerator::AskForReason() {
  if (unwatched_ == nullptr || client_->Ready()) return;
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(asking_reason_, true)) return;
  }
  unwatched_->AskInfo({}, MonotonicNow() + kModelTime,
                      [this](const absl::StatusOr<GeneratorInfo>& info) {
                        absl::MutexLock lock(&mu_);
                        asking_reason_ = false;
                        // It is serving again since, and may have said so.
                        if (client_->Ready()) return;
                        // No other code is the orchestrator's own word about
                        // its model: gRPC itself never gives this one.
                        reason_ = absl::IsFailedPrecondition(info.status())
                                      ? info.status()
                                      : absl::OkStatus();
                      });
}

void WatchedGenerator::CheckPrincipals() {
  if (!with_principals_) return;
  const absl::Time now = MonotonicNow();
  {
    absl::MutexLock lock(&mu_);
    // Only with a model: the token is known then, and a refusal is the name's.
    if (!info_.has_value() || checking_ || now < check_again_) return;
    checking_ = true;
    check_again_ = now + times_.refresh;
  }
  client_->AskInfo(
      {.principal = kInvalidPrincipal}, now + kModelTime,
      [this](const absl::StatusOr<GeneratorInfo>& info) {
        absl::MutexLock lock(&mu_);
        checking_ = false;
        if (absl::IsUnauthenticated(info.status())) {
          principals_ = absl::OkStatus();
        } else if (info.ok()) {
          // All callers would share the gateway's account and cache scopes.
          const absl::Status refused = absl::UnavailableError(
              "the orchestrator does not let this server speak for its "
              "callers: its token needs speaks_for_others in the "
              "orchestrator's token file");
          if (principals_ != refused) {
            FORETOKEN_LOG(kError, refused.message());
          }
          principals_ = refused;
        }
      });
}

absl::StatusOr<GeneratorInfo> WatchedGenerator::Info(absl::Time) {
  AskForModel();
  CheckPrincipals();
  absl::MutexLock lock(&mu_);
  if (!reason_.ok()) return reason_;
  if (!info_.has_value()) return NoAnswer();
  if (MonotonicNow() > expires_) return NoAnswerAnyMore();
  if (!principals_.ok()) return principals_;
  return *info_;
}

bool WatchedGenerator::Ready() {
  return Info(absl::InfiniteFuture()).ok() && client_->Ready();
}

}  // namespace foretoken::gateway
