#include "services/crest/core/crest_sessions.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest/crest_tail.h"
#include "common/speculation/modes.h"

namespace foretoken::crest {
namespace {

// The first max_nodes nodes; a node's probability is the share of the matches
// that pass through it.
DraftTree ToDraft(const CrestTree& found, int max_nodes) {
  DraftTree draft;
  const float all = static_cast<float>(std::max(1u, found.matches));
  const int nodes = std::min(max_nodes, found.size());
  for (int i = 0; i < nodes; ++i) {
    draft.Add(found.tokens[i], found.parents[i],
              std::min(1.0f, static_cast<float>(found.counts[i]) / all));
  }
  return draft;
}

}  // namespace

class CrestSessions::Session final : public DraftSession {
 public:
  Session(const Datastore& datastore, LookupObserver& observer,
          std::optional<Sha256Digest> tokenizer, const DraftOpen& open,
          std::shared_ptr<DraftListener> listener)
      : datastore_(datastore),
        observer_(observer),
        tokenizer_(tokenizer),
        tail_(open.tokens),
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
    if (round.max_nodes == 0) {
      listener_->OnAnswer(std::move(answer));
      return absl::OkStatus();
    }
    const absl::Time start = absl::Now();
    const std::shared_ptr<const ServedVersion> served = datastore_.current();
    if (served == nullptr) {
      const absl::Status state = datastore_.state();
      // It may have begun to serve just now.
      return state.ok() ? absl::UnavailableError("try again") : state;
    }
    if (tokenizer_.has_value()) {
      FORETOKEN_RETURN_IF_ERROR(CheckTokenizer(served->info.meta, *tokenizer_));
    }
    if (served->index == nullptr) {
      return served->rows->Submit(
          tail_.tokens(),
          [listener = listener_, &observer = observer_, start,
           answer = std::move(answer), max_nodes = round.max_nodes](
              const BatchedSource::Query& query) {
            if (!query.n.ok()) {
              observer.LookupFailed();
              listener->OnFailed(query.n.status());
              return;
            }
            const absl::Duration took = absl::Now() - start;
            observer.LookedUpInPostgres(*query.n, query.cached, took);
            DraftAnswer found = answer;
            found.tree = ToDraft(query.tree, max_nodes);
            found.draft_time = took;
            listener->OnAnswer(std::move(found));
          });
    }
    const int n = served->index->Lookup(tail_.tokens(), found_);
    answer.tree = ToDraft(found_, round.max_nodes);
    answer.draft_time = absl::Now() - start;
    observer_.LookedUpInMemory(n, answer.draft_time);
    listener_->OnAnswer(std::move(answer));
    return absl::OkStatus();
  }

  const Datastore& datastore_;
  LookupObserver& observer_;
  const std::optional<Sha256Digest> tokenizer_;
  CrestTail tail_;
  const std::shared_ptr<DraftListener> listener_;
  CrestTree found_;  // scratch
};

absl::StatusOr<std::unique_ptr<DraftSession>> CrestSessions::Open(
    DraftOpen open, std::shared_ptr<DraftListener> listener) {
  const CrestModeOptions* const mode = open.mode.As<CrestModeOptions>();
  if (mode == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("mode ", open.mode.name(), ": crest drafts crest"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Datastore* datastore,
                             datastores_.Find(mode->datastore));
  std::optional<Sha256Digest> tokenizer;
  if (open.tokenizer_fingerprint.size() == Sha256Digest().size()) {
    std::copy(open.tokenizer_fingerprint.begin(),
              open.tokenizer_fingerprint.end(), tokenizer.emplace().begin());
  }
  return std::make_unique<Session>(*datastore, observer_, tokenizer, open,
                                   std::move(listener));
}

}  // namespace foretoken::crest
