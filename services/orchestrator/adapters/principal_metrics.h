// Requests and tokens by account, so that an operator sees who loads a server.
//
// Label values are the names of the token file, a closed set; all other
// callers, those of tokens without a name included, are `other`, which is no
// name there. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_PRINCIPAL_METRICS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_PRINCIPAL_METRICS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics/registry.h"
#include "services/orchestrator/core/admission/request_call.h"

namespace foretoken::orchestrator {

class PrincipalMetrics {
 public:
  // Accounts with a label of their own. Reloads of the file may bring new ones
  // without end; those beyond this number are `other`.
  static constexpr size_t kMaxAccounts = 1000;
  static constexpr char kOther[] = "other";

  class Account final : public CallerAccount {
   public:
    Account(metrics::Registry& registry, const std::string& name);
    void OnPromptTokens(int64_t count) override;
    void OnGeneratedTokens(int64_t count) override;
    void OnEnd(absl::StatusCode code) override;

   private:
    prometheus::Counter& served_;
    prometheus::Counter& refused_;
    prometheus::Counter& cancelled_;
    prometheus::Counter& failed_;
    prometheus::Counter& prompt_tokens_;
    prometheus::Counter& generated_tokens_;
  };

  explicit PrincipalMetrics(metrics::Registry& registry)
      : registry_(registry), other_(registry, kOther) {}

  // `name`: an account of the token file, or kOther. The reference lives as
  // long as this object.
  Account& Of(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  metrics::Registry& registry_;
  Account other_;
  absl::Mutex mu_;
  std::map<std::string, Account> accounts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_PRINCIPAL_METRICS_H_
