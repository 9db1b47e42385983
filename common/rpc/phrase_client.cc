#include "common/rpc/phrase_client.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/convert_draft.h"

namespace foretoken::rpc {
namespace {

// The target may be through with its prefill by then: no use later.
constexpr absl::Duration kFetchTime = absl::Seconds(2);

}  // namespace

// gRPC holds the call until it is done, its Fetch until it is abandoned.
class PhraseClient::Call final : public LiveCall {
 public:
  Call(LiveCalls& calls, Done done)
      : membership_(calls, this), on_phrases_(std::move(done)) {}
  ~Call() override { membership_.calls.Forget(this); }

  static std::shared_ptr<Call> Start(PhraseClient& client,
                                     const PhraseQuery& query, Done done) {
    auto call = std::make_shared<Call>(client.calls_, std::move(done));
    PrepareCall(call->context_, absl::Now() + kFetchTime,
                client.endpoint_.token);
    call->request_.set_cache_scope(query.cache_scope);
    call->request_.set_max_phrases(query.max_phrases);
    call->request_.set_phrase_tokens(query.phrase_tokens);
    call->request_.set_tokenizer_fingerprint(query.tokenizer_fingerprint);
    client.stub_->async()->GetPhrases(
        &call->context_, &call->request_, &call->response_,
        [call](grpc::Status status) { call->OnAnswer(status); });
    return call;
  }

  // Afterwards Done does not run, and has not begun to.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    on_phrases_ = nullptr;
  }

  void Cancel() override { context_.TryCancel(); }
  bool done() const override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return answered_;
  }

 private:
  void OnAnswer(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<Phrase> phrases;
    if (status.ok()) {
      auto read = FromProto(response_.phrases());
      if (read.ok()) phrases = *std::move(read);
    }
    absl::MutexLock lock(&mu_);
    answered_ = true;
    if (on_phrases_) std::exchange(on_phrases_, nullptr)(std::move(phrases));
  }

  LiveCalls::Membership membership_;  // before what holds the channel
  grpc::ClientContext context_;
  v1::GetPhrasesRequest request_;
  v1::GetPhrasesResponse response_;
  mutable absl::Mutex mu_;  // held while on_phrases_ runs
  Done on_phrases_ ABSL_GUARDED_BY(mu_);
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
};

class PhraseClient::CallFetch final : public Fetch {
 public:
  explicit CallFetch(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  ~CallFetch() override { call_->Abandon(); }

 private:
  const std::shared_ptr<Call> call_;
};

PhraseClient::PhraseClient(Endpoint endpoint)
    : endpoint_(std::move(endpoint)),
      stub_(v1::TrieDrafter::NewStub(endpoint_.channel)) {}

std::unique_ptr<SharedPhrases::Fetch> PhraseClient::GetPhrases(
    const PhraseQuery& query, Done done) {
  return std::make_unique<CallFetch>(
      Call::Start(*this, query, std::move(done)));
}

}  // namespace foretoken::rpc
