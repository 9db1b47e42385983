#include "services/orchestrator/adapters/remote_drafter.h"

#include <algorithm>
#include <utility>

#include "common/rpc/convert_draft.h"

namespace foretoken::orchestrator {
namespace {

// The target may be through with its prefill by then: no use later.
constexpr absl::Duration kFetchTime = absl::Seconds(2);
// Of one message, and of what is kept for the next.
constexpr size_t kMaxPhrases = 4096;

void AddPhrases(std::vector<Phrase>& from, std::vector<Phrase>& to) {
  const size_t room = kMaxPhrases - std::min(kMaxPhrases, to.size());
  if (from.size() > room) from.resize(room);
  to.insert(to.end(), std::make_move_iterator(from.begin()),
            std::make_move_iterator(from.end()));
  from.clear();
}

}  // namespace

std::shared_ptr<PhraseFetch> PhraseFetch::Start(
    v1::TrieDrafter::Stub& stub, DraftPeer& peer,
    const v1::GetPhrasesRequest& request, Done done) {
  std::shared_ptr<PhraseFetch> fetch(
      new PhraseFetch(peer.live_calls(), std::move(done)));
  rpc::PrepareCall(fetch->context_, absl::Now() + kFetchTime, peer.token());
  fetch->request_ = request;
  stub.async()->GetPhrases(
      &fetch->context_, &fetch->request_, &fetch->response_,
      [fetch](grpc::Status status) { fetch->OnAnswer(status); });
  return fetch;
}

bool PhraseFetch::done() const {
  absl::MutexLock lock(&mu_);
  return answered_;
}

void PhraseFetch::OnAnswer(const grpc::Status& status) {
  std::vector<Phrase> phrases;
  if (status.ok()) {
    auto read = rpc::FromProto(response_.phrases());
    if (read.ok()) phrases = *std::move(read);
  }
  absl::MutexLock lock(&mu_);
  answered_ = true;
  if (done_) std::exchange(done_, nullptr)(std::move(phrases));
}

void PhraseFetch::Abandon() {
  absl::MutexLock lock(&mu_);
  done_ = nullptr;
}

RemoteDrafter::RemoteDrafter(Options options, DraftPeer& peer)
    : RemoteSource(peer), options_(std::move(options)) {}

RemoteDrafter::~RemoteDrafter() {
  if (fetch_ != nullptr) fetch_->Abandon();
  // The rest of the output: what a service keeps of it is for later requests.
  if (connected() && !unsent_.empty()) {
    DraftRound last;
    last.length = static_cast<int64_t>(open_.tokens.size());
    SendUnasked(NextMessage(last));
  }
  Hangup();
}

void RemoteDrafter::Start(const DraftOpen& open) {
  open_ = open;
  open_.mode = options_.mode;
  open_.tokenizer_fingerprint = options_.tokenizer_fingerprint;
  if (options_.warm_start == nullptr || open_.cache_scope.empty()) {
    DialAhead();
    return;
  }
  // Until the fetch is done or abandoned, this object is its callback's alone.
  fetch_ = options_.warm_start(open_.cache_scope,
                               [this](std::vector<Phrase> phrases) {
                                 // They come newest first and are inserted in
                                 // order.
                                 std::reverse(phrases.begin(), phrases.end());
                                 open_.phrases = std::move(phrases);
                                 DialAhead();
                               });
}

std::shared_ptr<RemoteDrafter::Call> RemoteDrafter::Dial() {
  v1::DraftRequest request;
  unsent_.clear();
  fresh_ = true;
  std::shared_ptr<Call> call =
      Call::Start(options_.method, absl::InfiniteFuture(), peer().token(),
                  peer().live_calls());
  const absl::Status converted = rpc::ToProto(open_, request.mutable_open());
  if (!converted.ok()) {
    FORETOKEN_LOG(kError, peer().name(), ": ", converted.ToString());
  }
  call->Send(std::move(request));
  return call;
}

v1::DraftRequest RemoteDrafter::NextMessage(const DraftRound& round) {
  DraftRound sent = round;
  sent.committed = std::exchange(unsent_, {});
  sent.phrases = std::exchange(phrases_, {});
  // A session knows nothing of trees that were verified before it.
  if (std::exchange(fresh_, false)) sent.verified = VerifiedTree();
  v1::DraftRequest request;
  rpc::ToProto(sent, request.mutable_round());
  return request;
}

void RemoteDrafter::Ask(const DraftRound& round) {
  if (fetch_ != nullptr) {
    fetch_->Abandon();
    fetch_.reset();
  }
  open_.tokens.insert(open_.tokens.end(), round.committed.begin(),
                      round.committed.end());
  unsent_.insert(unsent_.end(), round.committed.begin(), round.committed.end());
  std::vector<Phrase> phrases = round.phrases;
  AddPhrases(phrases, phrases_);
  asked_length_ = -1;
  if (round.max_nodes == 0 && drafts()) {
    SourceDraft leftovers;
    PassRound(leftovers);
    AddPhrases(leftovers.phrases, leftover_);
    return;
  }
  SourceDraft leftovers;
  const bool prepared = PrepareAsk(leftovers);
  AddPhrases(leftovers.phrases, leftover_);
  if (!prepared) return;
  asked_length_ = round.length;
  SendAsk(NextMessage(round));
}

RemoteDrafter::Answer RemoteDrafter::Parse(v1::DraftResponse& message,
                                           SourceDraft& draft) {
  absl::StatusOr<DraftAnswer> answer = rpc::FromProto(message);
  if (!answer.ok()) return Answer::kBad;
  AddPhrases(answer->phrases, draft.phrases);
  if (answer->length != asked_length_) return Answer::kStale;
  AddPhrases(leftover_, draft.phrases);
  draft.tree = std::move(answer->tree);
  return Answer::kFresh;
}

}  // namespace foretoken::orchestrator
