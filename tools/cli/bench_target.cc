#include "tools/cli/bench_target.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"
#include "services/orchestrator/core/generation_service.h"
#include "tools/cli/local_generation.h"
#ifdef FORETOKEN_HAVE_SERVICES
#include "common/rpc/generation_client.h"
#include "tools/cli/server_channel.h"
#endif

namespace foretoken::cli {
namespace {

using TakeDelta = absl::FunctionRef<absl::Status(const GenerationDelta&)>;

// Waits for a request that the service runs on a thread of its own.
class WaitingSink final : public orchestrator::GenerationSink {
 public:
  explicit WaitingSink(TakeDelta on_delta) : on_delta_(on_delta) {}

  absl::Status OnDelta(const GenerationDelta& delta) override {
    return on_delta_(delta);
  }
  absl::Status OnResult(const GenerationSummary& summary) override {
    summary_ = summary;
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override {
    status_ = status;
    ended_.Notify();
  }

  absl::StatusOr<GenerationSummary> Wait() {
    ended_.WaitForNotification();
    FORETOKEN_RETURN_IF_ERROR(status_);
    return std::move(summary_);
  }

 private:
  const TakeDelta on_delta_;
  GenerationSummary summary_;
  absl::Status status_;
  absl::Notification ended_;
};

class LocalTarget final : public mode_bench::Generator {
 public:
  explicit LocalTarget(std::unique_ptr<LocalGeneration> local)
      : local_(std::move(local)) {}

  absl::StatusOr<GenerationSummary> Generate(const GenerationRequest& request,
                                             TakeDelta on_delta) override {
    WaitingSink sink(on_delta);
    // An error of `on_delta` ends the call, so nothing cancels it.
    const auto call = local_->service().Start(request, sink);
    return sink.Wait();
  }

 private:
  const std::unique_ptr<LocalGeneration> local_;
};

absl::StatusOr<std::unique_ptr<mode_bench::Generator>> OpenLocal(
    const LocalModelFlags& model) {
  // A model without a tokenizer serves token ids alone.
  absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer =
      Tokenizer::LoadShared(model.backend.model);
  if (absl::IsNotFound(tokenizer.status())) {
    tokenizer = std::shared_ptr<const Tokenizer>();
  }
  FORETOKEN_RETURN_IF_ERROR(tokenizer.status());
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<LocalGeneration> local,
      StartLocalGeneration(model, /*tokens=*/0, *std::move(tokenizer)));
  return std::make_unique<LocalTarget>(std::move(local));
}

#ifdef FORETOKEN_HAVE_SERVICES
class ServerTarget final : public mode_bench::Generator {
 public:
  explicit ServerTarget(std::unique_ptr<rpc::GenerationClient> client)
      : client_(std::move(client)) {}

  absl::StatusOr<GenerationSummary> Generate(const GenerationRequest& request,
                                             TakeDelta on_delta) override {
    return client_->Generate(request, on_delta);
  }

 private:
  const std::unique_ptr<rpc::GenerationClient> client_;
};

absl::StatusOr<std::unique_ptr<mode_bench::Generator>> OpenServer(
    const BenchTargetFlags& flags) {
  rpc::ChannelOptions channel = ChannelOf(flags.server_access);
  channel.token_file = flags.server_token_file;
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<rpc::GenerationClient> client,
      rpc::GenerationClient::Connect(flags.server, channel));
  return std::make_unique<ServerTarget>(std::move(client));
}
#else
absl::StatusOr<std::unique_ptr<mode_bench::Generator>> OpenServer(
    const BenchTargetFlags&) {
  return absl::UnimplementedError(
      "--server: this build has no services, use --model");
}
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<mode_bench::Generator>> OpenBenchTarget(
    const BenchTargetFlags& flags) {
  if (flags.server.empty() == flags.model.backend.model.empty()) {
    return absl::InvalidArgumentError("want either --server or --model");
  }
  if (flags.server.empty()) return OpenLocal(flags.model);
  FORETOKEN_RETURN_IF_ERROR(CheckNoLocalModel(flags.model));
  return OpenServer(flags);
}

}  // namespace foretoken::cli
