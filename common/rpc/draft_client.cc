#include "common/rpc/draft_client.h"

#include <utility>

#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/draft_reader.h"

namespace foretoken::rpc {
namespace {

absl::StatusOr<DraftAnswer> Parse(const v1::DraftResponse& message) {
  return FromProto(message);
}

}  // namespace

class DraftClient::Session final : public DraftSession {
 public:
  Session(DraftClient& client, v1::DraftRequest open,
          std::shared_ptr<DraftListener> listener)
      : calls_(client.calls_) {
    auto reader = std::make_unique<DraftReader<v1::DraftResponse>>(
        Parse, std::move(listener));
    reader_ = reader.get();
    call_ = Call::Start(client.method_, absl::InfiniteFuture(),
                        client.endpoint_.token, calls_, std::move(reader));
    call_->Send(std::move(open));
  }
  ~Session() override {
    call_->Finish();
    calls_.LetEnd(std::move(call_));
  }

  void Ask(DraftRound round) override {
    v1::DraftRequest request;
    ToProto(round, request.mutable_round());
    reader_->Expect();
    call_->Send(std::move(request));
  }

 private:
  LiveCalls& calls_;
  DraftReader<v1::DraftResponse>* reader_;  // the call's
  std::shared_ptr<Call> call_;
};

absl::StatusOr<std::unique_ptr<DraftSession>> DraftClient::Open(
    DraftOpen open, std::shared_ptr<DraftListener> listener) {
  v1::DraftRequest request;
  FORETOKEN_RETURN_IF_ERROR(ToProto(open, request.mutable_open()));
  return std::make_unique<Session>(*this, std::move(request),
                                   std::move(listener));
}

}  // namespace foretoken::rpc
