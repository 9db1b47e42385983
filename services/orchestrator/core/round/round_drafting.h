// RoundDrafting: the drafting half of a request's rounds: asks all its sources
// at once, waits for them as long as that pays, and merges their drafts.
//
//   Start -> (Commit -> Draft)*
//
// A request that names its mode gets whole drafts: the wait is only bounded for
// a service that fails, by a multiple of what its drafts usually take. In mode
// auto (an economical request) the wait follows from the cost of a pass:
// measured on this request after its first round; before that taken from other
// recent requests, else from the verifiers' own figures. Late answers are
// dropped. report() says what every source did.
//
// A source that reads hints (the draft model in mode auto) is asked when the
// others have answered, if that is expected to pay beside their drafts.
//
// An economical request also leaves out sources that cost more time
// than they save, and nodes that cost more than they are expected to give; now
// and then it uses them anyway, to notice when that has changed. It follows the
// arm that the verifier announces. Under `off` no source is started, asked or
// told anything: sources get the text when drafting resumes, and those that
// have been started also when the request ends.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_ROUND_DRAFTING_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_ROUND_DRAFTING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/grammar/constrained_text.h"
#include "common/speculation/round.h"
#include "services/orchestrator/core/drafters/draft_source.h"
#include "services/orchestrator/core/economics/draft_estimates.h"
#include "services/orchestrator/core/economics/pass_costs.h"
#include "services/orchestrator/core/economics/round_pace.h"
#include "services/orchestrator/core/round/tree_merger.h"

namespace foretoken::orchestrator {

// How long drafts are waited for.
struct DraftWait {
  // Economical requests: in multiples of the cost of a pass.
  double passes = 3.0;
  absl::Duration floor = absl::Milliseconds(20);
  absl::Duration cap = absl::Seconds(1);
  // All others: in multiples of what the source's drafts usually take, never
  // less than `floor`.
  double failure = 10.0;
  absl::Duration failure_floor = absl::Seconds(2);
  absl::Duration failure_cap = absl::Minutes(1);
};

struct DraftingOptions {
  TreeLimits limits;
  DraftWait wait;
  bool economical = false;
  absl::Time deadline = absl::InfiniteFuture();  // of the request
  PassCosts costs;
  // Shared by requests; null: the sources' own estimates are used unchanged.
  std::shared_ptr<DraftEstimates> estimates;
  Clock clock = MonotonicClock();
};

// The sources of a request: those that draft, in the order of the mode table,
// then those that do not.
using DraftSources = std::vector<std::unique_ptr<DraftSource>>;

// Result of one source in one round.
struct SourceReport {
  DrafterId id = DrafterId::kFused;
  DraftOutcome outcome = DraftOutcome::kNotAsked;
  int32_t nodes = 0;  // of the verified tree that it proposed
  absl::Duration latency;
  bool shortened = false;  // late, or cut off before its mode was done
};

// The tokens committed since the last call.
struct CommittedText {
  absl::Span<const TokenId> tokens;
  // The whole text, `tokens` included; valid until Draft has returned.
  absl::Span<const TokenId> text;
  int64_t max_depth = 0;  // of the next tree; 0: no draft is wanted
  // The round that committed them; null for the token of prefill.
  const RoundResult* round = nullptr;
  absl::Duration verify_time;      // of that round
  DraftArm arm = DraftArm::kNone;  // that the verifier announced
};

class RoundDrafting {
 public:
  // `constraint`: the output, of which nothing is committed yet, under the
  // request's constraint; null: it has none. Draft nodes that it forbids cost
  // no row; a window's are read all the same.
  RoundDrafting(DraftSources sources, int32_t vocab_size,
                DraftingOptions options,
                std::shared_ptr<grammar::ConstrainedText> constraint = nullptr);

  // `text` is the prompt; it must stay valid until the first Commit, whose text
  // begins with it.
  void Start(const DraftOpen& open, absl::Span<const TokenId> text);
  // Sends the tokens to the sources and asks for drafts. Returns at once.
  void Commit(const CommittedText& committed);
  // Waits for the drafts. The round's tree is valid until the next call.
  const TokenTree& Draft();

  // Sources that draft, in the order of proposers.
  int size() const { return drafting_; }
  DrafterId id(int source) const { return sources_[source]->id(); }
  bool needs_rows() const { return needs_rows_; }
  // Candidates per row that the sources of the last Draft read; 0: none do.
  int32_t candidates() const;
  // The arm that the next round is drafted under; kNone if it follows none.
  DraftArm arm() const { return arm_; }
  // Results of the last Draft.
  const std::vector<SourceReport>& report() const { return report_; }
  absl::Duration draft_time() const { return draft_time_; }

 private:
  void Learn(const CommittedText& committed);
  // Time that the source's next answer is waited for.
  absl::Duration WaitBudget(int source) const;
  absl::Duration WaitForPasses() const;
  absl::Duration WaitForFailure(int source) const;
  // Learns how long the source's drafts take.
  void NoteLatency(int source);
  bool Wants(int source) const;
  bool WantsAfterHints(int source);
  // Whether what is left of the output can be worth the time that a source
  // takes to read the text first.
  bool ReadingPays(int source) const;
  absl::Duration TokenTime() const;
  std::vector<float> RowCosts() const;
  // Time by which a pass of the last tree's nodes was longer than one of
  // `nodes` in their place; negative if it was shorter.
  absl::Duration TimeBeyond(int32_t nodes) const;
  // Records the tokens and the time that the answer of a source that reads
  // hints brought or cost, compared with the hints alone.
  void LearnWorthBesideHints(int source, const CommittedText& committed);
  // Sends what Commit held back for the sources that read hints: to be asked
  // for drafts where that pays, or only told.
  void AskWithHints();
  // Number of nodes that a source that reads hints is asked for.
  int32_t MaxNodesBesideHints() const;
  // The draft of the source that reads hints; null if it has not answered.
  const DraftTree* ModelsTree() const;
  // Estimates the others' nodes again, now that the model has answered.
  void CorrectBesideModel();
  void TellHintReaders();
  void CollectFrom(int source);
  TreeMerger::Price PriceOfNodes() const;
  // Starts the sources, if they are not yet. `prompt` as in Start.
  void StartSources(absl::Span<const TokenId> prompt);
  // True if the sources need not hear of `committed` yet.
  bool Postpones(const CommittedText& committed);

  const DraftingOptions options_;
  const std::shared_ptr<grammar::ConstrainedText> constraint_;  // may be null
  const int32_t vocab_size_;
  DraftSources sources_;
  int drafting_ = 0;
  bool needs_rows_ = false;
  bool reads_hints_ = false;
  bool reads_costs_ = false;

  TreeMerger merger_;
  TokenTree tree_;
  std::vector<SourceDraft> drafts_;          // [drafting_]
  std::vector<std::vector<float>> probs_;    // [drafting_]
  std::vector<TreeMerger::Answer> answers_;  // [drafting_]
  std::vector<SourceReport> report_;         // [drafting_]
  std::vector<Phrase> phrases_;              // for sources that store them
  int64_t max_depth_ = 0;
  DraftArm arm_ = DraftArm::kNone;
  DraftOpen open_;  // until the sources are started
  size_t prompt_length_ = 0;
  bool started_ = false;
  // The round that waits for hints, if there is one, and its text.
  std::optional<DraftRound> held_;
  absl::Span<const TokenId> held_text_;
  DraftTree hints_;                    // that the last tree began with
  double hinted_ = 0;                  // accepted tokens that hints promise
  std::vector<bool> answered_before_;  // [drafting_]: in the round before
  std::vector<int> trial_rounds_;      // [drafting_]: still to be asked anyway
  size_t untold_ = 0;  // committed tokens that the sources have not heard of
  uint64_t turn_ = 0;  // of this round among all requests' rounds
  std::vector<absl::Time> deadlines_;  // [drafting_]
  // [drafting_]: moving average of a draft's time; zero before the first.
  std::vector<absl::Duration> usual_;
  absl::Time start_;
  absl::Duration prefill_time_;
  absl::Duration draft_time_;

  RoundPace pace_;
  SharedPace* shared_pace_ = nullptr;  // of requests that weigh their nodes
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_ROUND_DRAFTING_H_
