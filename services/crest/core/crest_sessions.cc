#include "services/crest/core/crest_sessions.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/drafting/token_tail.h"
#include "common/speculation/modes.h"

namespace foretoken::crest {

class CrestSessions::Session final : public DraftSession {
 public:
  Session(const Datastore& datastore, LookupObserver& observer,
          const DraftOpen& open, std::shared_ptr<DraftListener> listener,
          Clock clock)
      : datastore_(datastore),
        observer_(observer),
        clock_(std::move(clock)),
        tokenizer_(open.tokenizer_fingerprint),
        tail_(kMaxLookupContext, open.tokens),
        listener_(std::move(listener)) {}

  void Ask(DraftRound round) override {
    tail_.Append(round.committed);
    const absl::Status status = LookUp(round);
    if (status.ok()) return;
    observer_.LookupFailed();
    listener_->OnFailed(status);
  }

 private:
  absl::Status LookUp(const DraftRound& round) {
    DraftAnswer answer;
    answer.length = round.length;
    // Without room for a node: an answer all the same, since every round gets
    // one.
    if (round.max_nodes == 0) {
      listener_->OnAnswer(std::move(answer));
      return absl::OkStatus();
    }
    const absl::Time start = clock_();
    FORETOKEN_ASSIGN_OR_RETURN(
        const std::shared_ptr<const ServedVersion> served,
        datastore_.Serving());
    if (served == nullptr) {  // an empty datastore
      observer_.LookedUpInMemory(0, clock_() - start);
      listener_->OnAnswer(std::move(answer));
      return absl::OkStatus();
    }
    FORETOKEN_RETURN_IF_ERROR(CheckTokenizer(served->info.meta, tokenizer_));
    if (!served->in_memory()) {
      // The row worker answers on its own thread, perhaps after this session
      // has gone: the answer holds what it needs and not the session.
      return served->rows->Submit(
          tail_.tokens(),
          [listener = listener_, &observer = observer_, start, clock = clock_,
           answer = std::move(answer),
           max_nodes = round.max_nodes](const BatchedSource::Query& query) {
            if (!query.n.ok()) {
              observer.LookupFailed();
              listener->OnFailed(query.n.status());
              return;
            }
            const absl::Duration took = clock() - start;
            observer.LookedUpInPostgres(*query.n, query.cached, took);
            DraftAnswer found = answer;
            query.tree.FillDraft(max_nodes, found.tree);
            found.draft_time = took;
            listener->OnAnswer(std::move(found));
          });
    }
    const int n = served->Lookup(tail_.tokens(), round.max_nodes, found_);
    found_.FillDraft(round.max_nodes, answer.tree);
    answer.draft_time = clock_() - start;
    observer_.LookedUpInMemory(n, answer.draft_time);
    listener_->OnAnswer(std::move(answer));
    return absl::OkStatus();
  }

  const Datastore& datastore_;
  LookupObserver& observer_;
  const Clock clock_;
  const std::string tokenizer_;  // raw SHA-256; empty: not known
  TokenTail tail_;
  const std::shared_ptr<DraftListener> listener_;
  CrestTree found_;  // by the last look-up in memory
};

absl::StatusOr<std::unique_ptr<DraftSession>> CrestSessions::Open(
    DraftOpen open, std::shared_ptr<DraftListener> listener) {
  const CrestModeOptions* const mode = open.mode.As<CrestModeOptions>();
  if (mode == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("mode ", open.mode.name(), ": want crest"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Datastore* datastore,
                             datastores_.Find(mode->datastore));
  return std::make_unique<Session>(*datastore, observer_, open,
                                   std::move(listener), clock_);
}

}  // namespace foretoken::crest
