#include "common/rpc/draft_clients.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest/crest_record.h"
#include "common/drafting/token_tail.h"
#include "common/rpc/bidi_call.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/unary_call.h"
#include "common/speculation/modes.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "foretoken/v1/drafting.pb.h"
#include "foretoken/v1/trie_drafter.grpc.pb.h"
#include "grpcpp/generic/generic_stub.h"

namespace foretoken::rpc {
namespace {

// Deadline of a fetch of phrases. Later ones are useless: the target may have
// finished its prefill by then.
constexpr absl::Duration kFetchTime = absl::Seconds(2);

// Passes the answers on a session's stream to the session's listener.
template <typename Response>
class DraftReader final : public BidiReader<Response> {
 public:
  // Converts a message to an answer, or returns what is wrong with it.
  using Parse = absl::StatusOr<DraftAnswer> (*)(const Response&);

  DraftReader(Parse parse, std::shared_ptr<DraftListener> listener)
      : parse_(parse), listener_(std::move(listener)) {}

  // Called before each message that the service answers; thread-safe.
  void Expect() { ++owed_; }

  bool OnMessage(Response& message) override {
    if (failed_) return false;
    absl::StatusOr<DraftAnswer> answer = parse_(message);
    // Refuse unsolicited answers, so that a faulty service cannot fill this
    // process.
    if (!answer.ok() || --owed_ < 0) {
      Fail(absl::DataLossError("the service sent an invalid answer"));
      return false;
    }
    listener_->OnAnswer(*std::move(answer));
    return true;
  }
  // A stream ends by itself only when the service drains or fails: even an OK
  // status is an error to the session. Fail drops the status that follows an
  // answer refused above.
  void OnEnd(const absl::Status& status) override {
    Fail(status.ok() ? absl::UnavailableError("the service ended the stream")
                     : status);
  }

 private:
  void Fail(const absl::Status& status) {
    if (!std::exchange(failed_, true)) listener_->OnFailed(status);
  }

  const Parse parse_;
  const std::shared_ptr<DraftListener> listener_;
  std::atomic<int> owed_{0};
  bool failed_ = false;
};

// The stream of one session.
template <typename Request, typename Response>
class DraftCall {
 public:
  using Call = BidiCall<Request, Response>;

  DraftCall(Peer& peer, const typename Call::Method& method,
            typename DraftReader<Response>::Parse parse,
            std::shared_ptr<DraftListener> listener)
      : peer_(peer) {
    auto reader =
        std::make_unique<DraftReader<Response>>(parse, std::move(listener));
    reader_ = reader.get();
    // No deadline: a session lasts as long as its request, whose end destroys
    // it.
    call_ =
        Call::Start(method, absl::InfiniteFuture(), peer, std::move(reader));
  }
  ~DraftCall() {
    // Half-closes and hands the call to the peer, which waits for its end and
    // cancels it if that takes too long; the destructor must not block.
    call_->Finish();
    peer_.calls.LetEnd(std::move(call_));
  }

  void Send(Request message) { call_->Send(std::move(message)); }
  // Sends a message that the service answers.
  void Ask(Request message) {
    reader_->Expect();
    Send(std::move(message));
  }

 private:
  Peer& peer_;
  DraftReader<Response>* reader_;  // owned by call_
  std::shared_ptr<Call> call_;
};

using DraftStub =
    grpc::TemplatedGenericStub<v1::DraftRequest, v1::DraftResponse>;

class StreamSession final : public DraftSession {
 public:
  StreamSession(Peer& peer, DraftStub& stub, const std::string& method,
                v1::DraftRequest open, const std::string& traceparent,
                std::shared_ptr<DraftListener> listener)
      : call_(
            peer,
            [&](auto* context, auto* reactor) {
              AddTraceparent(*context, traceparent);
              stub.PrepareBidiStreamingCall(context, method, {}, reactor);
            },
            FromProto, std::move(listener)) {
    call_.Send(std::move(open));
  }

  void Ask(DraftRound round) override {
    v1::DraftRequest request;
    ToProto(round, request.mutable_round());
    call_.Ask(std::move(request));
  }

 private:
  DraftCall<v1::DraftRequest, v1::DraftResponse> call_;
};

class StreamClient final : public DraftSessions {
 public:
  StreamClient(const Endpoint& endpoint, absl::string_view service)
      : method_(absl::StrCat("/", DraftServiceName(service), "/Draft")),
        stub_(endpoint.channel),
        peer_(endpoint) {}

  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override {
    v1::DraftRequest request;
    FORETOKEN_RETURN_IF_ERROR(ToProto(open, request.mutable_open()));
    return std::make_unique<StreamSession>(peer_, stub_, method_,
                                           std::move(request), open.traceparent,
                                           std::move(listener));
  }

 private:
  const std::string method_;
  DraftStub stub_;
  Peer peer_;
};

absl::StatusOr<DraftAnswer> ParseLookup(
    const v1::CrestLookupResponse& message) {
  DraftAnswer answer;
  answer.length = static_cast<int64_t>(message.sequence());
  FORETOKEN_ASSIGN_OR_RETURN(answer.tree, ReadDraft(message.tree()));
  return answer;
}

// Look-ups of CREST are stateless: the session keeps the end of the text and
// sends it with every round. The length of the text is the sequence number, by
// which an answer is matched to its round.
class CrestSession final : public DraftSession {
 public:
  CrestSession(Peer& peer, v1::Crest::Stub& stub, std::string datastore,
               const DraftOpen& open, std::shared_ptr<DraftListener> listener)
      : datastore_(std::move(datastore)),
        tokenizer_fingerprint_(open.tokenizer_fingerprint),
        listener_(listener),
        tail_(kMaxLookupContext, open.tokens),
        call_(
            peer,
            [&](auto* context, auto* reactor) {
              AddTraceparent(*context, open.traceparent);
              stub.async()->Lookup(context, reactor);
            },
            ParseLookup, std::move(listener)) {}

  void Ask(DraftRound round) override {
    tail_.Append(round.committed);
    // Answered here: CREST refuses a look-up without nodes.
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
    call_.Ask(std::move(request));
  }

 private:
  const std::string datastore_;
  const std::string tokenizer_fingerprint_;
  const std::shared_ptr<DraftListener> listener_;
  TokenTail tail_;
  DraftCall<v1::CrestLookupRequest, v1::CrestLookupResponse> call_;
};

class CrestClient final : public DraftSessions {
 public:
  explicit CrestClient(const Endpoint& endpoint)
      : stub_(v1::Crest::NewStub(endpoint.channel)), peer_(endpoint) {}

  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override {
    const auto* const crest = open.mode.As<CrestModeOptions>();
    if (crest == nullptr) {
      return absl::UnimplementedError(absl::StrCat(
          "mode '", open.mode.name(), "': crest drafts mode crest only"));
    }
    return std::make_unique<CrestSession>(peer_, *stub_, crest->datastore, open,
                                          std::move(listener));
  }

 private:
  const std::unique_ptr<v1::Crest::Stub> stub_;
  Peer peer_;
};

class PhraseClient final : public SharedPhrases {
 public:
  explicit PhraseClient(const Endpoint& endpoint)
      : stub_(v1::TrieDrafter::NewStub(endpoint.channel)), peer_(endpoint) {}

  // A fetch that fails gives no phrases, since they only save drafting work.
  // Destroying the fetch abandons the call: `done` is then not called.
  std::unique_ptr<Fetch> GetPhrases(const PhraseQuery& query,
                                    Done done) override {
    v1::GetPhrasesRequest request;
    request.set_cache_scope(query.cache_scope);
    request.set_max_phrases(query.max_phrases);
    request.set_phrase_tokens(query.phrase_tokens);
    request.set_tokenizer_fingerprint(query.tokenizer_fingerprint);
    return std::make_unique<CallFetch>(Call::Start(
        [this](auto... arguments) {
          stub_->async()->GetPhrases(std::move(arguments)...);
        },
        std::move(request), MonotonicNow() + kFetchTime, peer_,
        [done = std::move(done)](const absl::Status& status,
                                 const v1::GetPhrasesResponse& response) {
          std::vector<Phrase> phrases;
          if (status.ok()) {
            auto read = FromProto(response.phrases());
            if (read.ok()) phrases = *std::move(read);
          }
          done(std::move(phrases));
        }));
  }

 private:
  using Call = UnaryCall<v1::GetPhrasesRequest, v1::GetPhrasesResponse>;

  class CallFetch final : public Fetch {
   public:
    explicit CallFetch(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~CallFetch() override { call_->Abandon(); }

   private:
    const std::shared_ptr<Call> call_;
  };

  const std::unique_ptr<v1::TrieDrafter::Stub> stub_;
  Peer peer_;
};

}  // namespace

std::string DraftServiceName(absl::string_view service) {
  std::string name = "foretoken.v1.";
  for (absl::string_view word : absl::StrSplit(service, '_')) {
    absl::StrAppend(&name, absl::AsciiStrToUpper(word.substr(0, 1)),
                    word.substr(1));
  }
  return name;
}

std::shared_ptr<DraftSessions> MakeDraftClient(const Endpoint& endpoint,
                                               absl::string_view service) {
  if (service == "crest") return std::make_shared<CrestClient>(endpoint);
  return std::make_shared<StreamClient>(endpoint, service);
}

std::shared_ptr<SharedPhrases> MakePhraseClient(const Endpoint& endpoint) {
  return std::make_shared<PhraseClient>(endpoint);
}

}  // namespace foretoken::rpc
