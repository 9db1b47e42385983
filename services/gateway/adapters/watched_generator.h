// WatchedGenerator: an orchestrator as the gateway sees it: a client, and what
// is known of its model without asking.
//
// What the model is called, what it can do and which tokenizer it has is asked
// again every few seconds, and forgotten where no answer comes: the model
// behind an orchestrator may change. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_WATCHED_GENERATOR_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_WATCHED_GENERATOR_H_

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/generation/generator.h"
#include "common/rpc/generation_client.h"

namespace foretoken::gateway {

class WatchedGenerator final : public Generator {
 public:
  struct ModelTimes {
    absl::Duration refresh = absl::Seconds(2);  // between two questions
    // An answer counts no longer than this. Longer than the restart of a
    // service, during which requests wait.
    absl::Duration expiry = absl::Seconds(15);
  };

  // The channel of `client` watches the health of foretoken.v1.Generation.
  // `with_principals`: callers are authenticated here, so there is no model
  // while the orchestrator does not let this service speak for them.
  // `unwatched`: a client whose channel does not watch, which asks the
  // orchestrator why its health is bad; null: that is not asked.
  WatchedGenerator(std::unique_ptr<rpc::GenerationClient> client,
                   bool with_principals, const ModelTimes& times,
                   std::unique_ptr<rpc::GenerationClient> unwatched = nullptr);
  ~WatchedGenerator() override;

  // From the latest answer, which is a few seconds old at most; does not wait.
  absl::StatusOr<GeneratorInfo> Info(absl::Time deadline) override;
  bool Ready() override;
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) override {
    return client_->Start(std::move(request), std::move(listener));
  }
  std::shared_ptr<PendingCall> Tokenize(const Caller& caller, std::string text,
                                        bool add_special_tokens,
                                        absl::Time deadline,
                                        OnTokens done) override {
    return client_->Tokenize(caller, std::move(text), add_special_tokens,
                             deadline, std::move(done));
  }
  std::shared_ptr<PendingCall> Detokenize(const Caller& caller,
                                          std::vector<TokenId> tokens,
                                          absl::Time deadline,
                                          OnText done) override {
    return client_->Detokenize(caller, std::move(tokens), deadline,
                               std::move(done));
  }

 private:
  // Keeps the model's answer young, also while no requests come: the first
  // request after a pause must find neither an old model nor none.
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_);
  // Asks for the model unless that is under way or was done lately.
  void AskForModel() ABSL_LOCKS_EXCLUDED(mu_);
  // Asks why requests are not served, where they are not.
  void AskForReason() ABSL_LOCKS_EXCLUDED(mu_);
  // Asks the orchestrator whether it takes this service's word for who calls,
  // again and again: its token file may change while it runs.
  void CheckPrincipals() ABSL_LOCKS_EXCLUDED(mu_);

  const ModelTimes times_;
  const bool with_principals_;

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<GeneratorInfo> info_ ABSL_GUARDED_BY(mu_);
  absl::Time expires_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // info_
  // OK while the latest check has shown that calls are made in the callers'
  // names.
  absl::Status principals_ ABSL_GUARDED_BY(mu_);
  bool checking_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time check_again_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  bool asking_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time ask_again_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // Why the orchestrator serves nothing; OK if it does, or did not say.
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
  bool asking_reason_ ABSL_GUARDED_BY(mu_) = false;

  // Last: their calls, and the thread, use all of the above.
  std::unique_ptr<rpc::GenerationClient> client_;
  std::unique_ptr<rpc::GenerationClient> unwatched_;  // may be null
  std::thread refresher_;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_WATCHED_GENERATOR_H_
