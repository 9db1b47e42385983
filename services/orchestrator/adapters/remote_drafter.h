// RemoteDrafter: a session on a trie_drafter or a draft_worker, over one Draft
// stream.
//
// The request's text is kept here: a session that was lost, or that could not
// be opened, is opened with all of it at the next ask that the breaker allows.
// What is committed while no draft is wanted travels with the next ask.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_DRAFTER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_DRAFTER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "foretoken/v1/drafting.pb.h"
#include "foretoken/v1/trie_drafter.grpc.pb.h"
#include "services/orchestrator/adapters/remote_source.h"

namespace foretoken::orchestrator {

// The shared phrases of a scope, asked for while the target prefills. Whoever
// lets go first: the answer to an abandoned fetch goes nowhere. Thread-safe.
class PhraseFetch final : public AnyCall {
 public:
  using Done = std::function<void(std::vector<Phrase>)>;

  // `done` runs once, on another thread, with what came: nothing where the
  // service has nothing or fails. `stub` and `peer` must outlive the call.
  static std::shared_ptr<PhraseFetch> Start(
      v1::TrieDrafter::Stub& stub, DraftPeer& peer,
      const v1::GetPhrasesRequest& request, Done done);
  ~PhraseFetch() override { left_.live.Forget(this); }
  // When this returns `done` has run, or never will.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);

  void Cancel() override { context_.TryCancel(); }
  bool done() const override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Leaves once all members behind it are gone.
  struct Leaving {
    LiveCalls& live;
    ~Leaving() { live.Leave(); }
  };

  PhraseFetch(LiveCalls& live, Done done)
      : left_{live}, done_(std::move(done)) {
    live.Enter(this);
  }
  void OnAnswer(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  Leaving left_;  // before what holds the channel
  grpc::ClientContext context_;
  v1::GetPhrasesRequest request_;
  v1::GetPhrasesResponse response_;
  mutable absl::Mutex mu_;  // held while `done_` runs
  Done done_ ABSL_GUARDED_BY(mu_);
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
};

class RemoteDrafter final
    : public RemoteSource<v1::DraftRequest, v1::DraftResponse> {
 public:
  // Starts a fetch for a cache scope.
  using Fetcher = std::function<std::shared_ptr<PhraseFetch>(
      const std::string& cache_scope, PhraseFetch::Done done)>;

  struct Options {
    DrafterId id = DrafterId::kFused;
    bool drafts = true;
    bool needs_rows = false;
    Mode mode;
    std::string tokenizer_fingerprint;
    Call::Method method;
    Fetcher warm_start;  // null: none
  };

  // `peer` must outlive the object.
  RemoteDrafter(Options options, DraftPeer& peer);
  ~RemoteDrafter() override;

  DrafterId id() const override { return options_.id; }
  bool drafts() const override { return options_.drafts; }
  bool needs_rows() const override { return options_.needs_rows; }
  void Start(const DraftOpen& open) override;
  void Ask(const DraftRound& round) override;

 protected:
  std::shared_ptr<Call> Dial() override;
  Answer Parse(v1::DraftResponse& message, SourceDraft& draft) override;

 private:
  v1::DraftRequest NextMessage(const DraftRound& round);

  const Options options_;
  std::shared_ptr<PhraseFetch> fetch_;
  DraftOpen open_;                // its tokens: all of the text
  std::vector<TokenId> unsent_;   // its end, that the session has not seen
  std::vector<Phrase> phrases_;   // to be passed on
  std::vector<Phrase> leftover_;  // of late answers
  bool fresh_ = false;            // nothing was said on the stream but its open
  int64_t asked_length_ = -1;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REMOTE_DRAFTER_H_
