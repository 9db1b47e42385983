#include "tools/cli/generation_target.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#ifdef FORETOKEN_HAVE_SERVICES
#include "common/rpc/generation_client.h"
#include "tools/cli/server_channel.h"
#endif

namespace foretoken::cli {

#ifdef FORETOKEN_HAVE_SERVICES
absl::StatusOr<std::unique_ptr<Generator>> ConnectToServer(
    const RemoteServerFlags& flags) {
  rpc::ChannelOptions channel = ChannelOf(flags.server_access);
  channel.token_file = flags.server_token_file;
  return rpc::GenerationClient::Connect(flags.server, channel);
}
#else
absl::StatusOr<std::unique_ptr<Generator>> ConnectToServer(
    const RemoteServerFlags&) {
  return absl::UnimplementedError(
      "--server: this build has no services, use --model");
}
#endif

absl::StatusOr<std::unique_ptr<GenerationTarget>> GenerationTarget::OpenServer(
    const RemoteServerFlags& flags, double timeout_s,
    std::shared_ptr<const Tokenizer> tokenizer) {
  FORETOKEN_ASSIGN_OR_RETURN(std::shared_ptr<Generator> server,
                             ConnectToServer(flags));
  auto target = std::make_unique<GenerationTarget>(std::move(server));
  target->server_ = flags.server;
  target->timeout_s_ = timeout_s;
  target->tokenizer_ = std::move(tokenizer);
  FORETOKEN_RETURN_IF_ERROR(target->CheckTokenizer(absl::InfiniteFuture()));
  return target;
}

absl::Status GenerationTarget::CheckTokenizer(absl::Time deadline) {
  if (tokenizer_ == nullptr) return absl::OkStatus();
  const absl::StatusOr<GeneratorInfo> info = generator_->Info(deadline);
  FORETOKEN_RETURN_IF_ERROR(Annotate(info.status(), server_));
  const std::string& theirs = info->tokenizer_fingerprint;
  // Empty: a server with random weights has no tokenizer to disagree with.
  if (theirs.empty() || theirs == tokenizer_->fingerprint_bytes()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "--tokenizer: is not that of the model ", info->model, " of ", server_));
}

absl::StatusOr<GenerationSummary> GenerationTarget::Generate(
    GenerationRequest request, TakeDelta on_delta) {
  if (timeout_s_ > 0) {
    request.deadline = MonotonicNow() + absl::Seconds(timeout_s_);
  }
  // The server may have changed its model since the last request.
  FORETOKEN_RETURN_IF_ERROR(CheckTokenizer(request.deadline));
  auto summary = foretoken::Generate(*generator_, std::move(request), on_delta);
  // In this process the error needs no address.
  if (summary.ok() || server_.empty()) return summary;
  return Annotate(summary.status(), server_);
}

}  // namespace foretoken::cli
