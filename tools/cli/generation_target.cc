#include "tools/cli/generation_target.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "services/orchestrator/core/generation_service.h"
#include "tools/cli/local_generation.h"
#ifdef FORETOKEN_HAVE_SERVICES
#include "common/rpc/generation_client.h"
#include "tools/cli/server_channel.h"
#endif

namespace foretoken::cli {
namespace {

// Waits for a request that the service runs on a thread of its own.
class WaitingSink final : public orchestrator::GenerationSink {
 public:
  explicit WaitingSink(Generator::TakeDelta on_delta) : on_delta_(on_delta) {}

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
  const Generator::TakeDelta on_delta_;
  GenerationSummary summary_;
  absl::Status status_;
  absl::Notification ended_;
};

class LocalTarget final : public Generator {
 public:
  explicit LocalTarget(std::unique_ptr<LocalGeneration> local)
      : local_(std::move(local)) {}

  absl::StatusOr<GenerationSummary> Generate(GenerationRequest request,
                                             TakeDelta on_delta) override {
    WaitingSink sink(on_delta);
    // An error of `on_delta` ends the call, so nothing cancels it.
    const auto call = local_->service().Start(std::move(request), sink);
    return sink.Wait();
  }

 private:
  const std::unique_ptr<LocalGeneration> local_;
};

#ifdef FORETOKEN_HAVE_SERVICES
constexpr absl::Duration kInfoTimeout = absl::Seconds(30);

class ServerTarget final : public Generator {
 public:
  ServerTarget(std::unique_ptr<rpc::GenerationClient> client,
               std::string address, double timeout_s,
               std::shared_ptr<const Tokenizer> tokenizer)
      : client_(std::move(client)),
        address_(std::move(address)),
        timeout_s_(timeout_s),
        tokenizer_(std::move(tokenizer)) {}

  absl::Status CheckTokenizer(absl::Time deadline) const {
    if (tokenizer_ == nullptr) return absl::OkStatus();
    const auto info = client_->GetModelInfo(
        std::min(deadline, MonotonicNow() + kInfoTimeout));
    FORETOKEN_RETURN_IF_ERROR(Annotate(info.status(), address_));
    const std::string& theirs = info->tokenizer_fingerprint();
    if (theirs.empty() || theirs == tokenizer_->fingerprint_bytes()) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("--tokenizer: is not that of the model ", info->model(),
                     " of ", address_));
  }

  absl::StatusOr<GenerationSummary> Generate(GenerationRequest request,
                                             TakeDelta on_delta) override {
    if (timeout_s_ > 0) {
      request.deadline = MonotonicNow() + absl::Seconds(timeout_s_);
    }
    // The server may have changed its model since the last request.
    FORETOKEN_RETURN_IF_ERROR(CheckTokenizer(request.deadline));
    auto summary = client_->Generate(request, on_delta);
    FORETOKEN_RETURN_IF_ERROR(Annotate(summary.status(), address_));
    return summary;
  }

 private:
  const std::unique_ptr<rpc::GenerationClient> client_;
  const std::string address_;
  const double timeout_s_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
};
#endif

}  // namespace

#ifdef FORETOKEN_HAVE_SERVICES
absl::StatusOr<std::unique_ptr<Generator>> OpenServerTarget(
    const RemoteServerFlags& flags, double timeout_s,
    std::shared_ptr<const Tokenizer> tokenizer) {
  rpc::ChannelOptions channel = ChannelOf(flags.server_access);
  channel.token_file = flags.server_token_file;
  FORETOKEN_ASSIGN_OR_RETURN(
      auto client, rpc::GenerationClient::Connect(flags.server, channel));
  auto target = std::make_unique<ServerTarget>(std::move(client), flags.server,
                                               timeout_s, std::move(tokenizer));
  FORETOKEN_RETURN_IF_ERROR(target->CheckTokenizer(absl::InfiniteFuture()));
  return target;
}
#else
absl::StatusOr<std::unique_ptr<Generator>> OpenServerTarget(
    const RemoteServerFlags&, double, std::shared_ptr<const Tokenizer>) {
  return absl::UnimplementedError(
      "--server: this build has no services, use --model");
}
#endif

absl::StatusOr<std::unique_ptr<Generator>> OpenLocalTarget(
    const LocalModelFlags& flags, int64_t tokens, int32_t at_once,
    std::shared_ptr<const Tokenizer> tokenizer) {
  LocalModelFlags model = flags;
  model.backend.max_sessions = at_once;
  FORETOKEN_ASSIGN_OR_RETURN(
      auto local, StartLocalGeneration(model, tokens, std::move(tokenizer)));
  return std::make_unique<LocalTarget>(std::move(local));
}

}  // namespace foretoken::cli
