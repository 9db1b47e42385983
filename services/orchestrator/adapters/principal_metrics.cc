#include "services/orchestrator/adapters/principal_metrics.h"

namespace foretoken::orchestrator {

PrincipalMetrics::Account::Account(metrics::Registry& registry,
                                   const std::string& name)
    : served_(registry.GetCounter(metrics::kPrincipalRequests, name, "served")),
      refused_(
          registry.GetCounter(metrics::kPrincipalRequests, name, "refused")),
      cancelled_(
          registry.GetCounter(metrics::kPrincipalRequests, name, "cancelled")),
      failed_(registry.GetCounter(metrics::kPrincipalRequests, name, "failed")),
      prompt_tokens_(
          registry.GetCounter(metrics::kPrincipalTokens, name, "prompt")),
      generated_tokens_(
          registry.GetCounter(metrics::kPrincipalTokens, name, "generated")) {}

void PrincipalMetrics::Account::OnPromptTokens(int64_t count) {
  prompt_tokens_.Increment(static_cast<double>(count));
}

void PrincipalMetrics::Account::OnGeneratedTokens(int64_t count) {
  generated_tokens_.Increment(static_cast<double>(count));
}

void PrincipalMetrics::Account::OnEnd(absl::StatusCode code) {
  // Refusals are counted apart from failures: back-pressure is expected under
  // load and must not look like an error rate.
  switch (code) {
    case absl::StatusCode::kOk:
      return served_.Increment();
    case absl::StatusCode::kResourceExhausted:
      return refused_.Increment();
    case absl::StatusCode::kCancelled:
      return cancelled_.Increment();
    default:
      return failed_.Increment();
  }
}

PrincipalMetrics::Account& PrincipalMetrics::Of(const std::string& name) {
  // Calls without an account, which may be all of them, take no lock.
  if (name == kOther) return other_;
  absl::MutexLock lock(&mu_);
  // std::map keeps its nodes in place, so the reference that callers hold stays
  // valid while later accounts are added.
  const auto found = accounts_.find(name);
  if (found != accounts_.end()) return found->second;
  // Accounts are never removed, since callers hold references to them; once
  // full, the map stays full until restart.
  if (accounts_.size() >= kMaxAccounts) return other_;
  return accounts_.try_emplace(name, registry_, name).first->second;
}

}  // namespace foretoken::orchestrator
