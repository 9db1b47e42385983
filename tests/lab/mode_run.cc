#include "tests/lab/mode_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "services/orchestrator/core/round/lookahead.h"

namespace foretoken {
namespace {

using draft_worker::DraftEngine;
using draft_worker::DraftReport;
using draft_worker::ModeTotals;

// The KV of a prompt is computed once for all modes.
constexpr char kScope[] = "bench";

void AddDifference(const ModeTotals& after, const ModeTotals& before,
                   ModeTotals& sums) {
  sums.phrases_made += after.phrases_made - before.phrases_made;
  sums.phrases_tried += after.phrases_tried - before.phrases_tried;
  sums.phrase_tokens += after.phrase_tokens - before.phrase_tokens;
  sums.inspired += after.inspired - before.inspired;
  sums.refined += after.refined - before.refined;
}

// A session of the draft worker, in this thread and without deadlines.
class WorkerSource final : public orchestrator::DraftSource {
 public:
  WorkerSource(DraftEngine& engine, Mode mode, bool warm_start,
               PhrasePool& earlier, ModeCounts& counts)
      : engine_(engine),
        mode_(std::move(mode)),
        warm_start_(warm_start),
        earlier_(earlier),
        counts_(counts) {}
  ~WorkerSource() override {
    if (session_ >= 0) FORETOKEN_CHECK(engine_.Close(session_).ok());
  }

  DrafterId id() const override { return mode_.info().drafter; }
  bool needs_rows() const override {
    return mode_.As<OuroborosOptions>() != nullptr;
  }

  void Start(const DraftOpen& open, absl::Span<const TokenId> text) override {
    DraftOpen own = open;
    own.tokens.assign(text.begin(), text.end());
    own.prompt_length = static_cast<int64_t>(text.size());
    own.cache_scope = kScope;
    own.mode = mode_;
    if (warm_start_) own.phrases = Earlier();
    absl::StatusOr<SessionId> session = engine_.Open(std::move(own));
    FORETOKEN_CHECK(session.ok());
    session_ = *session;
    while (engine_.HasWork())
      FORETOKEN_CHECK(engine_.RunPass().failures.empty());
  }

  void Ask(const DraftRound& round, absl::Span<const TokenId>) override {
    DraftRound own = round;
    own.budget = absl::InfiniteDuration();
    // The pool learns from the round before it drafts.
    before_ = engine_.snapshot().totals.modes;
    FORETOKEN_CHECK(engine_.Submit(session_, own).ok());
  }

  orchestrator::DraftOutcome Collect(
      absl::Time, orchestrator::SourceDraft& draft) override {
    while (true) {
      DraftReport report = engine_.RunPass();
      FORETOKEN_CHECK(report.failures.empty());
      if (report.stats.rows > 0) counts_.draft.Add(report.stats.rows);
      if (report.answers.empty()) continue;
      DraftAnswer& answer = report.answers[0].answer;
      AddDifference(engine_.snapshot().totals.modes, before_, counts_.phrases);
      for (const Phrase& phrase : answer.phrases) earlier_.Insert(phrase);
      draft.tree = std::move(answer.tree);
      return orchestrator::DraftOutcome::kAnswered;
    }
  }

 private:
  std::vector<Phrase> Earlier() const {
    const std::vector<TokenId> all = earlier_.Snapshot();
    const int beta = earlier_.options().phrase_tokens;
    std::vector<Phrase> phrases;
    for (auto at = all.begin(); at != all.end(); at += beta) {
      phrases.emplace_back(at, at + beta);
    }
    return phrases;
  }

  DraftEngine& engine_;
  const Mode mode_;
  const bool warm_start_;
  PhrasePool& earlier_;
  ModeCounts& counts_;
  SessionId session_ = -1;
  ModeTotals before_;
};

PhrasePoolOptions EarlierOptions(const Mode& mode) {
  PhrasePoolOptions options;
  if (const auto* ouroboros = mode.As<OuroborosOptions>()) {
    options.width = ouroboros->window;
    options.phrase_tokens = ouroboros->beta;
  }
  return options;
}

}  // namespace

ModeRun::ModeRun(verifier::VerifyEngine& target,
                 draft_worker::DraftEngine* draft,
                 const ModeRunOptions& options)
    : options_(options), target_(target), draft_(draft), driver_(target) {}

absl::StatusOr<ModeCounts> ModeRun::Run(
    const Mode& mode, absl::Span<const std::vector<TokenId>> prompts) {
  ModeCounts counts;
  PhrasePool earlier(EarlierOptions(mode));
  for (const std::vector<TokenId>& prompt : prompts) {
    FORETOKEN_ASSIGN_OR_RETURN(auto sources, Sources(mode, earlier, counts));
    FORETOKEN_RETURN_IF_ERROR(RunPrompt(std::move(sources), prompt, counts));
  }
  return counts;
}

absl::StatusOr<orchestrator::DraftSources> ModeRun::Sources(
    const Mode& mode, PhrasePool& earlier, ModeCounts& counts) {
  orchestrator::DraftSources sources;
  if (mode.As<OffOptions>() != nullptr) return sources;
  if (const auto* lookahead = mode.As<LookaheadOptions>()) {
    sources.push_back(
        std::make_unique<orchestrator::LookaheadSource>(*lookahead));
    return sources;
  }
  if (draft_ == nullptr || (mode.As<DraftModelOptions>() == nullptr &&
                            mode.As<OuroborosOptions>() == nullptr)) {
    return absl::UnimplementedError(absl::StrCat(
        "mode '", mode.name(),
        "', want off, lookahead, or with a draft model draft_model or "
        "ouroboros"));
  }
  sources.push_back(std::make_unique<WorkerSource>(
      *draft_, mode, options_.warm_start, earlier, counts));
  return sources;
}

absl::Status ModeRun::RunPrompt(orchestrator::DraftSources sources,
                                const std::vector<TokenId>& prompt,
                                ModeCounts& counts) {
  SessionRequest request;
  request.cache_scope = kScope;
  request.tokens = prompt;
  request.prompt_length = static_cast<int64_t>(prompt.size());
  request.max_length =
      std::min<int64_t>(request.prompt_length + options_.max_tokens,
                        target_.model().max_positions);
  request.sampling.temperature = 0;
  request.stop_tokens = target_.model().eos_tokens;
  request.sampling.end_tokens = request.stop_tokens;
  request.want_row_tokens = true;
  testing::InProcessVerifier verifier(driver_);
  FORETOKEN_ASSIGN_OR_RETURN(PrefillResult prefill,
                             verifier.Open(request, request.tokens));

  orchestrator::DraftingOptions options;
  options.limits.max_draft_nodes = options_.max_nodes;
  orchestrator::RoundDrafting drafting(std::move(sources),
                                       target_.model().vocab_size, options);
  DraftOpen open;
  open.sampling = request.sampling;
  std::vector<TokenId> text = request.tokens;
  drafting.Start(open, text);
  RoundResult result;
  result.tokens = std::move(prefill.tokens);
  result.finish = prefill.finish;
  bool first = true;
  while (true) {
    for (const SampledToken& token : result.tokens) text.push_back(token.token);
    if (result.finish != FinishReason::kNone) break;
    orchestrator::CommittedText committed;
    committed.text = text;
    committed.tokens = committed.text.last(result.tokens.size());
    committed.max_depth =
        request.max_length - static_cast<int64_t>(text.size()) - 1;
    committed.round = first ? nullptr : &result;
    first = false;
    drafting.Commit(committed);
    const TokenTree& tree = drafting.Draft();
    RoundRequest round;
    round.length = static_cast<int64_t>(text.size());
    round.tree = tree;
    FORETOKEN_ASSIGN_OR_RETURN(result, verifier.Round(std::move(round), {}));
    ++counts.rounds;
    counts.tokens += static_cast<int64_t>(result.tokens.size());
    counts.nodes += tree.draft_nodes();
    counts.target.Add(result.stats.pass_rows);
    counts.matches.Add(tree, result.row_tokens);
  }
  counts.outputs.emplace_back(text.begin() + request.prompt_length, text.end());
  return absl::OkStatus();
}

}  // namespace foretoken
