// RemoteGenerations: Generations over gRPC, by an orchestrator.
//
// What the model is called, what it can do and which tokenizer it has is asked
// again every few seconds, and forgotten where no answer comes: the model
// behind an orchestrator may change. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_REMOTE_GENERATIONS_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_REMOTE_GENERATIONS_H_

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/live_calls.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "services/gateway/core/generations.h"

namespace foretoken::gateway {

class RemoteGenerations final : public Generations {
 public:
  struct ModelTimes {
    absl::Duration refresh = absl::Seconds(2);  // between two questions
    // An answer counts no longer than this. Longer than the restart of a
    // service, during which requests wait.
    absl::Duration expiry = absl::Seconds(15);
  };

  // The channel watches the health of foretoken.v1.Generation.
  // `with_principals`: callers are authenticated here, so there is no model
  // while the orchestrator does not let this service speak for them.
  // `unwatched`: a channel that does not watch, over which the orchestrator is
  // asked why its health is bad; null: that is not asked.
  RemoteGenerations(const rpc::Endpoint& orchestrator, bool with_principals,
                    const std::shared_ptr<grpc::Channel>& unwatched = nullptr)
      : RemoteGenerations(orchestrator, with_principals, ModelTimes(),
                          unwatched) {}
  RemoteGenerations(const rpc::Endpoint& orchestrator, bool with_principals,
                    const ModelTimes& times,
                    const std::shared_ptr<grpc::Channel>& unwatched = nullptr);
  ~RemoteGenerations() override;

  absl::StatusOr<ServedModel> Model() override;
  bool Ready() override;
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) override;
  void Tokenize(const Caller& caller, std::string text, bool add_special_tokens,
                absl::Time deadline, OnTokens done) override;
  void Detokenize(const Caller& caller, std::vector<TokenId> tokens,
                  absl::Time deadline, OnText done) override;

 private:
  // Keeps the model's answer young, also while no requests come: the first
  // request after a pause must find neither an old model nor none.
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_);
  // Asks for the model unless that is under way or was done lately.
  void AskForModel() ABSL_LOCKS_EXCLUDED(mu_);
  // Asks why requests are not served, where they are not.
  void AskForReason() ABSL_LOCKS_EXCLUDED(mu_);
  // Asks the orchestrator, until it is known, whether it takes this service's
  // word for who calls.
  void CheckPrincipals() ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<v1::Generation::Stub> stub_;
  const std::unique_ptr<v1::Generation::Stub> unwatched_;  // may be null
  const ModelTimes times_;

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<ServedModel> model_ ABSL_GUARDED_BY(mu_);
  absl::Time expires_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // model_
  // OK once the check has shown that calls are made in the callers' names.
  absl::Status principals_ ABSL_GUARDED_BY(mu_);
  bool checking_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time check_again_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  bool asking_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time ask_again_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // Why the orchestrator serves nothing; OK if it does, or did not say.
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
  bool asking_reason_ ABSL_GUARDED_BY(mu_) = false;

  rpc::Peer peer_;         // its calls use all of the above
  std::thread refresher_;  // last: uses all of the above
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_REMOTE_GENERATIONS_H_
