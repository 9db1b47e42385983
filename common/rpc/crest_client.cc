#include "common/rpc/crest_client.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest/crest_record.h"
#include "common/drafting/token_tail.h"
#include "common/rpc/bidi_call.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/draft_reader.h"
#include "common/speculation/modes.h"

namespace foretoken::rpc {
namespace {

using Call = BidiCall<v1::CrestLookupRequest, v1::CrestLookupResponse>;

absl::StatusOr<DraftAnswer> Parse(const v1::CrestLookupResponse& message) {
  DraftAnswer answer;
  answer.length = static_cast<int64_t>(message.sequence());
  FORETOKEN_ASSIGN_OR_RETURN(answer.tree, ReadDraft(message.tree()));
  return answer;
}

}  // namespace

class CrestClient::Session final : public DraftSession {
 public:
  Session(CrestClient& client, std::string datastore, const DraftOpen& open,
          std::shared_ptr<DraftListener> listener)
      : calls_(client.calls_),
        datastore_(std::move(datastore)),
        tokenizer_fingerprint_(open.tokenizer_fingerprint),
        listener_(std::move(listener)),
        tail_(kMaxCrestN, open.tokens) {
    auto reader = std::make_unique<DraftReader<v1::CrestLookupResponse>>(
        Parse, listener_);
    reader_ = reader.get();
    call_ = Call::Start(
        [&client](grpc::ClientContext* context, Call::Reactor* reactor) {
          client.stub_->async()->Lookup(context, reactor);
        },
        absl::InfiniteFuture(), client.endpoint_.token, calls_,
        std::move(reader));
  }
  ~Session() override {
    call_->Finish();
    calls_.LetEnd(std::move(call_));
  }

  void Ask(DraftRound round) override {
    tail_.Append(round.committed);
    if (round.max_nodes == 0) {
      DraftAnswer none;
      none.length = round.length;
      listener_->OnAnswer(std::move(none));
      return;
    }
    v1::CrestLookupRequest request;
    request.set_sequence(static_cast<uint64_t>(round.length));
    request.set_datastore(datastore_);
    request.mutable_context()->Add(tail_.tokens().begin(),
                                   tail_.tokens().end());
    request.set_max_nodes(round.max_nodes);
    request.set_tokenizer_fingerprint(tokenizer_fingerprint_);
    reader_->Expect();
    call_->Send(std::move(request));
  }

 private:
  LiveCalls& calls_;
  const std::string datastore_;
  const std::string tokenizer_fingerprint_;
  const std::shared_ptr<DraftListener> listener_;
  TokenTail tail_;
  DraftReader<v1::CrestLookupResponse>* reader_;  // the call's
  std::shared_ptr<Call> call_;
};

CrestClient::CrestClient(Endpoint endpoint)
    : endpoint_(std::move(endpoint)),
      stub_(v1::Crest::NewStub(endpoint_.channel)) {}

absl::StatusOr<std::unique_ptr<DraftSession>> CrestClient::Open(
    DraftOpen open, std::shared_ptr<DraftListener> listener) {
  const CrestModeOptions* const crest = open.mode.As<CrestModeOptions>();
  if (crest == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("mode ", open.mode.name(), ": crest drafts crest"));
  }
  return std::make_unique<Session>(*this, crest->datastore, open,
                                   std::move(listener));
}

}  // namespace foretoken::rpc
