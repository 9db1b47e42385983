// LocalGenerations: the HTTP API's Generations on the orchestrator's core in
// this process, without gRPC. Requests are charged to the same memory, wait in
// the same queue and are counted in the same accounts as those that come by
// gRPC. Thread-safe.
#ifndef FORETOKEN_SERVICES_LOCAL_LOCAL_GENERATIONS_H_
#define FORETOKEN_SERVICES_LOCAL_LOCAL_GENERATIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/byte_budget.h"
#include "services/gateway/core/generations.h"
#include "services/orchestrator/server.h"

namespace foretoken::local {

class LocalGenerations final : public gateway::Generations {
 public:
  // `orchestrator` must outlive this object.
  LocalGenerations(orchestrator::OrchestratorServer& orchestrator,
                   std::string model_name)
      : orchestrator_(orchestrator), model_name_(std::move(model_name)) {}
  // Waits for the end of all requests and work on texts.
  ~LocalGenerations() override;

  absl::StatusOr<gateway::ServedModel> Model() override;
  bool Ready() override { return orchestrator_.Ready(); }
  std::shared_ptr<gateway::GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<gateway::GenerationListener> listener) override;
  void Tokenize(const Caller& caller, std::string text, bool add_special_tokens,
                absl::Time deadline, OnTokens done) override;
  void Detokenize(const Caller& caller, std::vector<TokenId> tokens,
                  absl::Time deadline, OnText done) override;

 private:
  class Call;
  // Holds up the destructor as long as it lives.
  class Busy {
   public:
    explicit Busy(LocalGenerations& owner) : owner_(owner) { owner_.Change(1); }
    ~Busy() { owner_.Change(-1); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    LocalGenerations& owner_;
  };

  orchestrator::GenerationService& generation() const {
    return orchestrator_.generation();
  }
  void Change(int work) ABSL_LOCKS_EXCLUDED(mu_);
  // The memory of work on a text of `bytes` bytes.
  absl::StatusOr<ByteBudget::Share> Admit(const Caller& caller,
                                          const char* field, int64_t bytes,
                                          int64_t memory);
  // Runs `work` on the threads for texts.
  template <typename Result>
  void RunTextWork(const Caller& caller, int64_t bytes, absl::Time deadline,
                   absl::StatusOr<ByteBudget::Share> memory,
                   std::function<absl::StatusOr<Result>()> work,
                   std::function<void(absl::StatusOr<Result>)> done);

  orchestrator::OrchestratorServer& orchestrator_;
  const std::string model_name_;
  absl::Mutex mu_;
  int work_ ABSL_GUARDED_BY(mu_) = 0;  // requests and texts not yet ended
};

}  // namespace foretoken::local

#endif  // FORETOKEN_SERVICES_LOCAL_LOCAL_GENERATIONS_H_
