#include "services/orchestrator/core/round/round_drafting.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace foretoken::orchestrator {
namespace {

// A source that does not pay is asked anyway once in kAskAnyway rounds of all
// requests. A session takes twice as many nodes as pay once in kTakeAnyway
// passes, so that the cost of a few more rows stays known.
constexpr uint64_t kAskAnyway = 32;
constexpr double kTakeAnyway = 64;
constexpr int kLeastAnyway = 4;
// The same for a source that reads hints, and the rounds that it is then asked
// in: the first of them also pays for what was committed in between.
constexpr uint64_t kTryEvery = 128;
constexpr int kTrialRounds = 4;
// Drafts of a model save this share of the rounds' time at most.
constexpr double kMaxSaving = 0.4;
// A draft model reads a text in about this share of the target's time.
constexpr double kReadShare = 0.25;
// Committed tokens after which a source that was started is told of them, even
// if it is not asked.
constexpr size_t kMaxUntold = 256;
// Weight of the latest draft in what a source's drafts usually take.
constexpr double kNewestDraft = 0.25;

// Drops the nodes that the constraint forbids, with all below them.
void DropForbidden(grammar::ConstrainedText& constraint, DraftTree& tree) {
  const std::vector<bool> allowed =
      constraint.Allowed(tree.tokens, tree.parents);
  // The usual case: drafts that come from the model's own habits keep to the
  // grammar. Nothing is copied then.
  if (std::find(allowed.begin(), allowed.end(), false) == allowed.end()) return;
  DraftTree kept;
  std::vector<int32_t> index(tree.tokens.size(), -1);
  for (int32_t node = 0; node < tree.size(); ++node) {
    if (!allowed[node]) continue;
    const int32_t parent = tree.parents[node];
    index[node] =
        kept.Add(tree.tokens[node],
                 parent == kRootParent ? kRootParent : index[parent],
                 tree.probs[node]);
    if (!tree.parts.empty()) kept.parts.push_back(tree.parts[node]);
  }
  tree = std::move(kept);
}

}  // namespace

RoundDrafting::RoundDrafting(
    DraftSources sources, int32_t vocab_size, DraftingOptions options,
    std::shared_ptr<grammar::ConstrainedText> constraint)
    : options_(std::move(options)),
      constraint_(std::move(constraint)),
      vocab_size_(vocab_size),
      sources_(std::move(sources)),
      merger_(options_.limits) {
  for (const auto& source : sources_) {
    // Sources that draft come first, so that one index serves drafts_, report_
    // and the proposers of the tree.
    FORETOKEN_CHECK(!source->drafts() || &source == &sources_[drafting_]);
    drafting_ += source->drafts();
    needs_rows_ |= source->needs_rows();
    reads_hints_ |= source->reads_hints();
    reads_costs_ |= source->reads_costs();
    FORETOKEN_CHECK(!source->reads_hints() ||
                    (source->drafts() && !source->needs_rows()));
  }
  drafts_.resize(drafting_);
  probs_.resize(drafting_);
  answers_.resize(drafting_);
  report_.resize(drafting_);
  deadlines_.resize(drafting_);
  usual_.resize(drafting_);
  answered_before_.resize(drafting_);
  trial_rounds_.resize(drafting_);
  for (int i = 0; i < drafting_; ++i) report_[i].id = id(i);
  if (options_.economical && options_.estimates != nullptr) {
    shared_pace_ = &options_.estimates->pace();
  }
}

void RoundDrafting::Start(const DraftOpen& open,
                          absl::Span<const TokenId> text) {
  start_ = options_.clock();
  open_ = open;
  prompt_length_ = text.size();
  const bool follows = options_.economical && shared_pace_ != nullptr;
  // In a server where drafting does not pay just now, a request starts without
  // its sources, whose opening alone costs the drafters a prefill.
  if (follows && shared_pace_->RecentArm(options_.clock()) == DraftArm::kOff) {
    return;
  }
  StartSources(text);
}

void RoundDrafting::StartSources(absl::Span<const TokenId> prompt) {
  if (std::exchange(started_, true)) return;
  for (const auto& source : sources_) source->Start(open_, prompt);
  // Held no longer than needed: it has a copy of the sampling parameters.
  open_ = DraftOpen();
}

bool RoundDrafting::Postpones(const CommittedText& committed) {
  const bool ended = committed.max_depth <= 0;
  // Sources that were never asked need not read a prompt at its end.
  if (arm_ != DraftArm::kOff && (started_ || !ended)) return false;
  if (ended ? started_ : untold_ >= kMaxUntold && started_) return false;
  untold_ += committed.tokens.size();
  return true;
}

absl::Duration RoundDrafting::WaitBudget(int source) const {
  const absl::Duration left = options_.deadline - options_.clock();
  return std::clamp(
      options_.economical ? WaitForPasses() : WaitForFailure(source),
      absl::ZeroDuration(), std::max(left, absl::ZeroDuration()));
}

absl::Duration RoundDrafting::WaitForFailure(int source) const {
  const DraftWait& wait = options_.wait;
  // Before its first draft, a draft model reads the prompt, as the target did.
  const absl::Duration usual =
      usual_[source] > absl::ZeroDuration() ? usual_[source] : prefill_time_;
  const absl::Duration floor = std::max(wait.floor, wait.failure_floor);
  return std::clamp(usual * wait.failure, floor,
                    std::max(floor, wait.failure_cap));
}

void RoundDrafting::NoteLatency(int source) {
  const SourceReport& report = report_[source];
  absl::Duration& usual = usual_[source];
  if (report.outcome == DraftOutcome::kAnswered) {
    usual = usual == absl::ZeroDuration()
                ? report.latency
                : usual + (report.latency - usual) * kNewestDraft;
  } else if (report.outcome == DraftOutcome::kLate && report.latency > usual) {
    // A source may have become slower for good; one that hangs must not make
    // every wait a multiple of the last. Zero stays: no draft has been seen.
    usual += std::min(report.latency - usual, usual) * kNewestDraft;
  }
}

absl::Duration RoundDrafting::WaitForPasses() const {
  absl::Duration pass = pace_.verify_time();
  if (pass == absl::ZeroDuration()) {
    // Nothing was measured in this request yet: the price of a full tree, which
    // is the longest that its pass should take.
    pass = absl::Milliseconds(
        options_.costs.At(1.0 + options_.limits.max_draft_nodes));
  }
  if (pass == absl::ZeroDuration()) return options_.wait.cap;
  return std::clamp(pass * options_.wait.passes, options_.wait.floor,
                    std::max(options_.wait.floor, options_.wait.cap));
}

bool RoundDrafting::Wants(int source) const {
  if (max_depth_ == 0 || arm_ == DraftArm::kOff) return false;
  if (!options_.economical || options_.estimates == nullptr) return true;
  if (!pace_.known()) return true;
  // Each source has its own turn, so that no round waits for all of them.
  if ((turn_ + source) % kAskAnyway == 0) return true;
  return options_.estimates->IsWorthItsTime(id(source), /*hinted=*/0,
                                            pace_.round_time(), pace_.tokens(),
                                            options_.clock());
}

bool RoundDrafting::WantsAfterHints(int source) {
  if (!options_.economical || options_.estimates == nullptr) return true;
  if (!sources_[source]->has_text() && !ReadingPays(source)) return false;
  int& trial = trial_rounds_[source];
  if (trial > 0) {
    --trial;
    return true;
  }
  if (!pace_.known() || options_.estimates->IsWorthItsTime(
                            id(source), hinted_, pace_.round_time(),
                            pace_.tokens(), options_.clock())) {
    return true;
  }
  if ((turn_ + source) % kTryEvery != 0) return false;
  trial = kTrialRounds - 1;
  return true;
}

bool RoundDrafting::ReadingPays(int source) const {
  if (held_text_.size() <= static_cast<size_t>(kShortText)) return true;
  const absl::Duration token_time = TokenTime();
  if (token_time == absl::ZeroDuration()) return true;
  absl::Duration read = options_.estimates->ReadTime(
      id(source), static_cast<int64_t>(held_text_.size()));
  if (read == absl::ZeroDuration()) read = prefill_time_ * kReadShare;
  return read <= token_time * kMaxSaving * static_cast<double>(max_depth_ + 1);
}

absl::Duration RoundDrafting::TokenTime() const {
  if (pace_.known()) return pace_.round_time() / pace_.tokens();
  return absl::Milliseconds(options_.costs.At(1.0));
}

std::vector<float> RoundDrafting::RowCosts() const {
  std::vector<float> costs;
  if (!options_.costs.known()) return costs;
  // Nodes are priced at the load of the latest pass: the rows of the other
  // sessions are in it anyway, so a node costs what it adds to them.
  const PassLoad& load = pace_.load();
  double before = options_.costs.At(1.0 + load.other_rows);
  for (int node = 1; node <= options_.limits.max_draft_nodes; ++node) {
    const double after = options_.costs.At(1.0 + load.other_rows + node);
    // A row delays all sessions of the pass.
    costs.push_back(static_cast<float>(std::max(0.0, after - before) *
                                       (1.0 + load.passes_waited) *
                                       (1.0 + load.other_sessions)));
    before = after;
  }
  return costs;
}

absl::Duration RoundDrafting::TimeBeyond(int32_t nodes) const {
  if (!options_.costs.known()) return absl::ZeroDuration();
  const PassLoad& load = pace_.load();
  const double rows = 1.0 + load.other_rows;
  // What the pass cost more than one with the hints alone would have; negative
  // if the merged tree is smaller.
  return absl::Milliseconds((options_.costs.At(rows + tree_.draft_nodes()) -
                             options_.costs.At(rows + nodes)) *
                            (1.0 + load.passes_waited) *
                            (1.0 + load.other_sessions));
}

// The answer adds tokens, and where it leaves hints out, the pass is shorter.
void RoundDrafting::LearnWorthBesideHints(int source,
                                          const CommittedText& committed) {
  const double accepted = static_cast<double>(committed.tokens.size()) - 1;
  options_.estimates->NoteGain(
      id(source), hinted_, accepted - ExpectedDepth(hints_, committed.tokens),
      report_[source].latency + TimeBeyond(hints_.size()), options_.clock());
}

void RoundDrafting::Learn(const CommittedText& committed) {
  if (options_.estimates == nullptr || committed.round == nullptr) return;
  std::vector<int64_t> matched(drafting_, 0);
  const DraftTree* model = ModelsTree();
  for (int i = 0; i < drafting_; ++i) {
    options_.estimates->Learn(id(i), drafts_[i].tree, committed.tokens,
                              sources_[i]->reads_hints() ? nullptr : model);
    matched[i] = MatchedDepth(drafts_[i].tree, committed.tokens);
  }
  const absl::Time now = options_.clock();
  for (int i = 0; i < drafting_; ++i) {
    const DraftOutcome outcome = report_[i].outcome;
    const bool answered_before = answered_before_[i];
    answered_before_[i] = outcome == DraftOutcome::kAnswered;
    if (outcome == DraftOutcome::kNotAsked) continue;
    if (sources_[i]->reads_hints()) {
      // If it was not asked before, it also read what was committed since.
      if (answered_before) LearnWorthBesideHints(i, committed);
      continue;
    }
    int64_t others = 0;
    absl::Duration others_latency;
    for (int j = 0; j < drafting_; ++j) {
      if (j == i) continue;
      others = std::max(others, matched[j]);
      // Those that were not asked at the same time were not waited for.
      if (sources_[j]->reads_hints()) continue;
      others_latency = std::max(others_latency, report_[j].latency);
    }
    const absl::Duration wait =
        std::max(absl::ZeroDuration(), report_[i].latency - others_latency);
    options_.estimates->NoteGain(
        id(i), /*hinted=*/0,
        static_cast<double>(std::max<int64_t>(0, matched[i] - others)), wait,
        now);
  }
}

void RoundDrafting::Commit(const CommittedText& committed) {
  if (constraint_ != nullptr) constraint_->Append(committed.tokens);
  // First, so that sources with a session see rounds in order, this one's among
  // them.
  TellHintReaders();
  Learn(committed);
  if (committed.round == nullptr) {
    prefill_time_ = options_.clock() - start_;
  } else {
    pace_.Note(committed.round->stats,
               static_cast<int64_t>(committed.tokens.size()), draft_time_,
               committed.verify_time);
  }
  if (shared_pace_ != nullptr) {
    if (committed.round == nullptr) {
      pace_ = shared_pace_->Recent(options_.clock());
    } else {
      shared_pace_->Publish(pace_, options_.clock());
    }
    shared_pace_->PublishArm(committed.arm, options_.clock());
    turn_ = shared_pace_->NextTurn();
  }
  if (options_.economical) arm_ = committed.arm;
  max_depth_ = committed.max_depth;
  for (int i = 0; i < drafting_; ++i) {
    report_[i] = SourceReport();
    report_[i].id = id(i);
  }
  if (Postpones(committed)) return;
  StartSources(committed.text.first(prompt_length_));
  const auto untold =
      committed.text.last(std::exchange(untold_, 0) + committed.tokens.size());
  DraftRound round;
  // One message with everything that a source has not been told.
  round.length = static_cast<int64_t>(committed.text.size());
  round.committed.assign(untold.begin(), untold.end());
  if (reads_costs_ && max_depth_ > 0) {
    round.token_time = TokenTime();
    round.row_ms = RowCosts();
  }

  VerifiedTree verified;
  if (needs_rows_ && committed.round != nullptr) {
    verified.tree = tree_;
    verified.row_tokens = committed.round->row_tokens;
    verified.path = committed.round->path;
    const auto& candidates = committed.round->row_candidates;
    if (candidates.size() == static_cast<size_t>(tree_.size()) + 1) {
      verified.candidates = CandidateRows::Of(candidates);
    }
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    DraftSource& source = *sources_[i];
    if (source.reads_hints()) continue;
    const bool reads = source.needs_rows();
    // Swapped in and out instead of copied: candidates of all rows are large,
    // and only some sources read them.
    if (reads) std::swap(round.verified, verified);
    if (!source.drafts()) std::swap(round.phrases, phrases_);
    const int index = static_cast<int>(i);
    round.max_nodes =
        source.drafts() && Wants(index) ? options_.limits.max_draft_nodes : 0;
    if (source.drafts()) {
      round.budget = WaitBudget(index);
      deadlines_[i] = options_.clock() + round.budget;
    }
    source.Ask(round, committed.text);
    if (reads) std::swap(round.verified, verified);
    round.phrases.clear();
    // Late until an answer has come.
    if (round.max_nodes > 0) report_[i].outcome = DraftOutcome::kLate;
  }
  if (!reads_hints_) return;
  round.max_nodes = 0;
  held_ = std::move(round);
  held_text_ = committed.text;
  if (max_depth_ <= 0 || arm_ == DraftArm::kOff) TellHintReaders();
}

void RoundDrafting::TellHintReaders() {
  if (!held_.has_value()) return;
  for (int i = 0; i < drafting_; ++i) {
    if (sources_[i]->reads_hints()) sources_[i]->Ask(*held_, held_text_);
  }
  held_.reset();
}

void RoundDrafting::AskWithHints() {
  DraftRound round = *std::move(held_);
  held_.reset();
  const TokenTree hints = merger_.Merge(answers_, PriceOfNodes());
  hinted_ = 0;
  for (int32_t node = 0; node < hints.draft_nodes(); ++node) {
    // A hint for each node of the merged drafts; its sum is what would be
    // accepted without the source.
    round.hints.Add(hints.tokens()[node], hints.parents()[node],
                    hints.probs()[node]);
    hinted_ += hints.probs()[node];
  }
  hints_ = round.hints;
  for (int i = 0; i < drafting_; ++i) {
    DraftSource& source = *sources_[i];
    if (!source.reads_hints()) continue;
    const int32_t most = MaxNodesBesideHints();
    const bool wanted = most > 0 && WantsAfterHints(i);
    round.max_nodes = wanted ? most : 0;
    round.budget = WaitBudget(i);
    deadlines_[i] = options_.clock() + round.budget;
    source.Ask(round, held_text_);
    if (wanted) report_[i].outcome = DraftOutcome::kLate;
    const std::optional<TextRead> read = source.TakeTextRead();
    if (read.has_value() && options_.estimates != nullptr) {
      options_.estimates->NoteTextRead(id(i), *read);
    }
  }
}

// Under `narrow` few nodes are verified, however likely they are. The source
// should not spend passes on more, nor where hints are as many.
int32_t RoundDrafting::MaxNodesBesideHints() const {
  const int32_t most = options_.limits.max_draft_nodes;
  if (arm_ != DraftArm::kNarrow) return most;
  const std::vector<float> certain(std::min(most, kMaxNarrowNodes), 1.0f);
  const int narrow = NarrowNodes(certain, options_.costs, pace_.load());
  return hints_.size() < narrow ? narrow : 0;
}

const DraftTree* RoundDrafting::ModelsTree() const {
  for (int i = 0; i < drafting_; ++i) {
    if (sources_[i]->reads_hints() &&
        report_[i].outcome == DraftOutcome::kAnswered) {
      return &drafts_[i].tree;
    }
  }
  return nullptr;
}

void RoundDrafting::CorrectBesideModel() {
  const DraftTree* model = ModelsTree();
  if (model == nullptr || options_.estimates == nullptr) return;
  for (int i = 0; i < drafting_; ++i) {
    if (sources_[i]->reads_hints() || answers_[i].tree == nullptr) continue;
    options_.estimates->Correct(id(i), drafts_[i].tree, probs_[i], model);
    answers_[i].probs = probs_[i];
  }
}

int32_t RoundDrafting::candidates() const {
  for (int i = 0; i < drafting_; ++i) {
    const DraftOutcome outcome = report_[i].outcome;
    if (sources_[i]->reads_candidates() &&
        (outcome == DraftOutcome::kAnswered ||
         outcome == DraftOutcome::kLate)) {
      return kMaxRowCandidates;
    }
  }
  return 0;
}

TreeMerger::Price RoundDrafting::PriceOfNodes() const {
  if (!options_.economical || options_.estimates == nullptr) return nullptr;
  if (arm_ == DraftArm::kNarrow) {
    return [this](absl::Span<const float> probs) {
      return NarrowNodes(probs, options_.costs, pace_.load());
    };
  }
  // One pass in kTakeAnyway, not one round: the rows of all its sessions add
  // up.
  const double sessions = 1.0 + pace_.load().other_sessions;
  // turn_ is uniform over 64 bits, so this is a number in [0, 1) without a
  // generator of its own.
  const double chance = std::ldexp(static_cast<double>(turn_), -64);
  const bool anyway = chance * kTakeAnyway * sessions < 1.0;
  return [this, anyway](absl::Span<const float> probs) {
    const int nodes = WorthwhileNodes(probs, options_.costs, pace_.load());
    if (!anyway) return nodes;
    return std::min(static_cast<int>(probs.size()),
                    std::max(2 * nodes, kLeastAnyway));
  };
}

void RoundDrafting::CollectFrom(int source) {
  if (report_[source].outcome == DraftOutcome::kNotAsked) return;
  SourceDraft& draft = drafts_[source];
  const absl::Time before = options_.clock();
  DraftOutcome outcome = sources_[source]->Collect(deadlines_[source], draft);
  if (outcome == DraftOutcome::kAnswered &&
      (!KeepUsable(vocab_size_, max_depth_, options_.limits.max_draft_nodes,
                   draft.tree) ||
       !KeepUsable(vocab_size_, max_depth_, options_.limits.max_rows,
                   draft.window))) {
    draft.Clear();
    outcome = DraftOutcome::kBroken;
  }
  // After the tree is known to be one. Forbidden drafts would be rejected by
  // the verifier in any case and only cost rows.
  if (constraint_ != nullptr && draft.tree.size() > 0) {
    DropForbidden(*constraint_, draft.tree);
  }
  report_[source].outcome = outcome;
  report_[source].latency = outcome == DraftOutcome::kAnswered
                                ? draft.latency
                                : options_.clock() - before;
  report_[source].shortened = outcome == DraftOutcome::kLate || draft.shortened;
  NoteLatency(source);
  if (drafting_ < static_cast<int>(sources_.size())) {
    KeepPhrases(std::move(draft.phrases), phrases_);
  }
  if (options_.estimates != nullptr) {
    options_.estimates->Correct(id(source), draft.tree, probs_[source]);
  } else {
    probs_[source] = draft.tree.probs;
  }
  answers_[source] = {&draft.tree, probs_[source], &draft.window};
}

const TokenTree& RoundDrafting::Draft() {
  const absl::Time start = options_.clock();
  for (int i = 0; i < drafting_; ++i) {
    answers_[i] = TreeMerger::Answer();
    drafts_[i].Clear();
    CollectFrom(i);
  }
  if (held_.has_value()) {
    AskWithHints();
    for (int i = 0; i < drafting_; ++i) {
      if (sources_[i]->reads_hints()) CollectFrom(i);
    }
    CorrectBesideModel();
  }
  const bool asked =
      std::any_of(report_.begin(), report_.end(), [](const auto& report) {
        return report.outcome != DraftOutcome::kNotAsked;
      });
  // Without drafts the empty tree: a round of plain decoding.
  tree_ = asked ? merger_.Merge(answers_, PriceOfNodes()) : TokenTree();
  for (int node = 0; node < tree_.draft_nodes(); ++node) {
    for (int i = 0; i < drafting_; ++i) {
      report_[i].nodes += (tree_.proposers()[node] >> i) & 1;
    }
  }
  draft_time_ = options_.clock() - start;
  return tree_;
}

}  // namespace foretoken::orchestrator
