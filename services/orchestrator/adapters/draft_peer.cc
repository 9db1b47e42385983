#include "services/orchestrator/adapters/draft_peer.h"

#include <random>

#include "absl/time/clock.h"
#include "common/base/log.h"

namespace foretoken::orchestrator {
namespace {

constexpr absl::Duration kEndTime = absl::Seconds(5);
constexpr size_t kMaxEnding = 1024;

double RandomShare() {
  thread_local std::minstd_rand random{std::random_device()()};
  return std::uniform_real_distribution<double>(0.0, 1.0)(random);
}

const char* Name(CircuitBreaker::State state) {
  switch (state) {
    case CircuitBreaker::State::kClosed:
      return "closed";
    case CircuitBreaker::State::kHalfOpen:
      return "half-open";
    case CircuitBreaker::State::kOpen:
      return "open";
  }
  return "";
}

}  // namespace

DraftPeer::DraftPeer(std::string name, DraftEndpoint endpoint,
                     const CircuitBreakerOptions& breaker,
                     metrics::Registry& registry)
    : name_(std::move(name)),
      endpoint_(std::move(endpoint)),
      breaker_(breaker, absl::Now, RandomShare,
               [name = name_,
                &gauge = registry.GetGauge(metrics::kBreakerState, name_)](
                   CircuitBreaker::State state) {
                 gauge.Set(static_cast<double>(state));
                 FORETOKEN_LOG(kInfo, name, ": circuit breaker ", Name(state));
               }) {}

void DraftPeer::LetEnd(std::shared_ptr<AnyCall> call) {
  const absl::Time now = absl::Now();
  absl::MutexLock lock(&mu_);
  ending_.push_back({now, std::move(call)});
  while (!ending_.empty()) {
    const Ending& oldest = ending_.front();
    if (!oldest.call->done()) {
      const bool overdue =
          now - oldest.since > kEndTime || ending_.size() > kMaxEnding;
      if (!overdue) return;
      oldest.call->Cancel();
    }
    ending_.pop_front();
  }
}

}  // namespace foretoken::orchestrator
