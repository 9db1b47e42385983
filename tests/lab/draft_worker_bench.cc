// A draft and a target model in one process, without a network: accept length
// of the draft worker's modes beside the passes of the draft model that they
// cost, prompt by prompt, and whether the output is that of plain decoding.
//
//   bench_draft_worker --target DIR --draft DIR --prompts FILE
//       [--modes "draft_model:gamma=3;auto+ouroboros:passes=1"] [--warm-start]
//       [--nodes 64] [--repeats 5] [--sessions 8] [--json]
//
// `auto+MODE` merges MODE's drafts with those of the fused drafter, calibrated
// as in mode `auto`, and `auto` alone is the fused drafter without the draft
// worker; trees are full, since no node is priced. Acceptance learned from one
// prompt serves the next ones; outputs do with --warm-start. In `auto+auto`
// the draft worker chooses how to draft, as in mode `auto`; in
// `auto+phrase_pool` the pool's newest phrases stand in for it. With
// `recompute:` before a mode, its drafts are those of an engine that computes
// the chain again in each pass, to be compared with the mode itself.
//
// FILE holds a prompt a line, with C escapes. A round is one verification;
// prefill is none. Drafts have no deadline, so that all but the times repeats
// to the digit on any machine, however busy. With --repeats the modes are run
// in turn so many times; tok/s is the median, by the clock and by processor
// time, which with --threads 1 hardly depends on what else the machine does.
// With --sessions each prompt is drafted for by so many sessions at once, in
// common passes: draft times are those of all of them together, rows those of
// one.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/config/flags.h"
#include "common/drafting/drafter_factory.h"
#include "common/drafting/phrase_pool.h"
#include "common/infer/factory/backend_factory.h"
#include "common/text/tokenizer.h"
#include "services/draft_worker/core/draft_engine.h"
#include "services/orchestrator/core/round/round_drafting.h"
#include "tests/lab/draft_matches.h"
#include "tests/lab/published_mode.h"
#include "tests/support/in_process_verifier.h"

namespace foretoken {
namespace {

constexpr char kModes[] =
    "draft_model:gamma=1;draft_model:gamma=2;draft_model:gamma=3;"
    "draft_model:gamma=5;draft_model:gamma=8;ouroboros:gamma=4;"
    "ouroboros:gamma=8;ouroboros:gamma=12;"
    "ouroboros:gamma=12,suffixes=0,inspiration=0,refinement=0;"
    "ouroboros:gamma=12,inspiration=0,refinement=0;"
    "ouroboros:gamma=12,inspiration=0;ouroboros:gamma=12,refinement=0";

// The length of a mode's phrases.
int PhraseTokens(const Mode& mode) {
  const auto* ouroboros = mode.As<OuroborosOptions>();
  return ouroboros != nullptr ? ouroboros->beta : OuroborosOptions().beta;
}

struct Settings {
  std::string target;
  std::string draft;
  std::string prompts;
  std::string modes = kModes;
  std::string precision = "bf16";
  int32_t max_tokens = 128;
  int32_t max_prompts = 32;
  int32_t threads = 0;
  int32_t nodes = 64;
  double temperature = 0.0;
  int32_t repeats = 1;
  int32_t sessions = 1;
  bool warm_start = false;
  bool json = false;
};

struct Score {
  int64_t rounds = 0;
  int64_t tokens = 0;  // of rounds
  int64_t nodes = 0;
  int64_t draft_passes = 0;
  int64_t draft_rows = 0;
  absl::Duration draft_time;
  absl::Duration draft_cpu_time;
  absl::Duration verify_time;
  absl::Duration cpu_time;  // of both, all threads
  Matches matches;
  draft_worker::ModeTotals pool;
  std::vector<std::vector<TokenId>> outputs;

  double tokens_per_second() const {
    return static_cast<double>(tokens) /
           absl::ToDoubleSeconds(draft_time + verify_time);
  }
  double tokens_per_cpu_second() const {
    return static_cast<double>(tokens) / absl::ToDoubleSeconds(cpu_time);
  }
};

absl::Duration ProcessorTime() {
  timespec now;
  FORETOKEN_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return absl::DurationFromTimespec(now);
}

// Adds the time from here to the end of the scope.
class Stopwatch {
 public:
  Stopwatch(absl::Duration& wall, absl::Duration& cpu)
      : wall_(wall), cpu_(cpu) {}
  ~Stopwatch() {
    wall_ += absl::Now() - start_;
    cpu_ += ProcessorTime() - cpu_start_;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  absl::Duration& wall_;
  absl::Duration& cpu_;
  const absl::Time start_ = absl::Now();
  const absl::Duration cpu_start_ = ProcessorTime();
};

void AddTotals(const draft_worker::ModeTotals& after,
               const draft_worker::ModeTotals& before,
               draft_worker::ModeTotals& sums) {
  sums.phrases_made += after.phrases_made - before.phrases_made;
  sums.phrases_tried += after.phrases_tried - before.phrases_tried;
  sums.phrase_tokens += after.phrase_tokens - before.phrase_tokens;
  sums.inspired += after.inspired - before.inspired;
  sums.refined += after.refined - before.refined;
}

// An item of --modes: a mode of the draft worker, alone or merged with the
// fused drafter.
struct BenchMode {
  bool recompute = false;
  bool fused = false;
  Mode worker;  // off: none

  // An empty text is plain decoding.
  static absl::StatusOr<BenchMode> Parse(absl::string_view text) {
    BenchMode mode;
    mode.recompute = absl::ConsumePrefix(&text, "recompute:");
    mode.fused = absl::ConsumePrefix(&text, "auto");
    if (mode.fused) absl::ConsumePrefix(&text, "+");
    const bool pool = mode.fused && absl::StartsWith(text, "phrase_pool");
    if (!text.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(
          mode.worker,
          ParsePublished(text, pool ? ModeUse::kReplay : ModeUse::kRequest));
    }
    return mode;
  }
  bool asks_pool() const {
    return worker.As<PhrasePoolDrafterOptions>() != nullptr;
  }
  DrafterId drafter() const {
    return worker.As<AutoOptions>() != nullptr ? DrafterId::kOuroboros
                                               : worker.info().drafter;
  }
  // Whether the worker reads what the target said about every row.
  bool needs_rows() const { return worker.As<OuroborosOptions>() != nullptr; }
  bool asks_worker() const {
    return worker.As<OffOptions>() == nullptr && !asks_pool();
  }
};

// The draft worker as a source of a merged tree, by a function that runs it.
class WorkerSource final : public orchestrator::DraftSource {
 public:
  using Run = std::function<absl::StatusOr<DraftAnswer>(const DraftRound&)>;

  WorkerSource(DrafterId id, bool needs_rows, Run run)
      : id_(id), needs_rows_(needs_rows), run_(std::move(run)) {}

  DrafterId id() const override { return id_; }
  bool needs_rows() const override { return needs_rows_; }
  void Start(const DraftOpen&, absl::Span<const TokenId>) override {}
  void Ask(const DraftRound& round, absl::Span<const TokenId>) override {
    round_ = round;
  }
  orchestrator::DraftOutcome Collect(
      absl::Time, orchestrator::SourceDraft& draft) override {
    absl::StatusOr<DraftAnswer> answer = run_(round_);
    FORETOKEN_CHECK(answer.ok());
    draft.tree = std::move(answer->tree);
    return orchestrator::DraftOutcome::kAnswered;
  }

 private:
  const DrafterId id_;
  const bool needs_rows_;
  const Run run_;
  DraftRound round_;
};

class Bench {
 public:
  Bench(const Settings& settings, std::vector<std::vector<TokenId>> prompts,
        std::unique_ptr<verifier::VerifyEngine> target,
        std::unique_ptr<draft_worker::DraftEngine> draft,
        std::unique_ptr<draft_worker::DraftEngine> recomputing)
      : settings_(settings),
        prompts_(std::move(prompts)),
        target_(std::move(target)),
        keeping_(std::move(draft)),
        recomputing_(std::move(recomputing)),
        driver_(*target_) {}

  absl::StatusOr<Score> Run(const std::string& mode) {
    FORETOKEN_ASSIGN_OR_RETURN(const BenchMode spec, BenchMode::Parse(mode));
    draft_ = spec.recompute ? recomputing_.get() : keeping_.get();
    PhrasePoolOptions pool;
    pool.phrase_tokens = PhraseTokens(spec.worker);
    pool_ = std::make_unique<PhrasePool>(pool);
    estimates_ = std::make_shared<orchestrator::DraftEstimates>();
    DrafterResources resources;
    resources.keep_history = settings_.warm_start;
    FORETOKEN_ASSIGN_OR_RETURN(fused_,
                               MakeDrafter(*Mode::Parse("auto"), resources));
    phrases_.reset();
    if (spec.asks_pool()) {
      FORETOKEN_ASSIGN_OR_RETURN(phrases_, MakeDrafter(spec.worker, resources));
    }
    const draft_worker::ModeTotals before = draft_->snapshot().totals.modes;
    Score score;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      FORETOKEN_RETURN_IF_ERROR(RunPrompt(spec, i, score));
    }
    AddTotals(draft_->snapshot().totals.modes, before, score.pool);
    return score;
  }

 private:
  SessionRequest Request(size_t index) const {
    SessionRequest request;
    request.tokens = prompts_[index];
    request.prompt_length = static_cast<int64_t>(request.tokens.size());
    request.max_length = request.prompt_length + settings_.max_tokens;
    request.sampling.temperature = static_cast<float>(settings_.temperature);
    request.sampling.seed = index;
    request.stop_tokens = target_->model().eos_tokens;
    request.sampling.end_tokens = request.stop_tokens;
    return request;
  }

  absl::Status RunPrompt(const BenchMode& bench, size_t index, Score& score) {
    const Mode& mode = bench.worker;
    const SessionRequest request = Request(index);
    testing::InProcessVerifier verifier(driver_);
    FORETOKEN_ASSIGN_OR_RETURN(PrefillResult prefill,
                               verifier.Open(request, request.tokens));
    SessionId key = -1;
    if (bench.asks_worker()) {
      DraftOpen open;
      open.tokens = request.tokens;
      open.prompt_length = request.prompt_length;
      open.sampling = request.sampling;
      open.phrases = WarmPhrases();
      open.mode = mode;
      for (int32_t i = 1; i < settings_.sessions; ++i) {
        FORETOKEN_ASSIGN_OR_RETURN(const SessionId mate, draft_->Open(open));
        mates_.push_back(mate);
      }
      FORETOKEN_ASSIGN_OR_RETURN(key, draft_->Open(std::move(open)));
    }
    std::vector<TokenId>& output = score.outputs.emplace_back();
    if (bench.fused) {
      FORETOKEN_RETURN_IF_ERROR(
          RunMerged(verifier, bench, key, request, prefill, score));
      return CloseDraft(key);
    }
    DraftRound round;
    round.max_nodes = settings_.nodes;
    round.length = prefill.length;
    round.committed = {prefill.tokens.at(0).token};
    output = round.committed;
    FinishReason finish = prefill.finish;
    while (finish == FinishReason::kNone) {
      FORETOKEN_ASSIGN_OR_RETURN(DraftAnswer answer, Draft(key, round, score));
      for (const Phrase& phrase : answer.phrases) pool_->Insert(phrase);
      score.nodes += answer.tree.size();
      FORETOKEN_RETURN_IF_ERROR(
          Verify(verifier, answer.tree, round, finish, score));
      output.insert(output.end(), round.committed.begin(),
                    round.committed.end());
    }
    return CloseDraft(key);
  }

  // A request whose trees are merged.
  absl::Status RunMerged(testing::InProcessVerifier& verifier,
                         const BenchMode& mode, SessionId key,
                         const SessionRequest& request,
                         const PrefillResult& prefill, Score& score) {
    orchestrator::DraftSources sources;
    if (key >= 0) {
      const auto run = [&](const DraftRound& round) {
        absl::StatusOr<DraftAnswer> answer = Draft(key, round, score);
        if (answer.ok()) {
          for (const Phrase& phrase : answer->phrases) pool_->Insert(phrase);
        }
        return answer;
      };
      sources.push_back(std::make_unique<WorkerSource>(mode.drafter(),
                                                       mode.needs_rows(), run));
    }
    if (phrases_ != nullptr) {
      sources.push_back(std::make_unique<orchestrator::LocalSource>(
          DrafterId::kOuroboros, phrases_, MonotonicClock()));
    }
    sources.push_back(std::make_unique<orchestrator::LocalSource>(
        DrafterId::kFused, fused_, MonotonicClock()));
    orchestrator::DraftingOptions options;
    options.limits.max_draft_nodes = settings_.nodes;
    options.estimates = estimates_;
    orchestrator::RoundDrafting drafting(std::move(sources),
                                         target_->model().vocab_size, options);

    std::vector<TokenId> text = request.tokens;
    std::vector<TokenId>& output = score.outputs.back();
    drafting.Start({}, text);
    RoundResult result;
    result.tokens = prefill.tokens;
    result.finish = prefill.finish;
    for (bool first = true; true; first = false) {
      for (const SampledToken& token : result.tokens) {
        text.push_back(token.token);
        output.push_back(token.token);
      }
      if (result.finish != FinishReason::kNone) return absl::OkStatus();
      RoundRequest verify;
      verify.length = static_cast<int64_t>(text.size());
      orchestrator::CommittedText committed;
      committed.text = text;
      committed.tokens = committed.text.last(result.tokens.size());
      committed.max_depth = request.max_length - verify.length - 1;
      committed.round = first ? nullptr : &result;
      {
        // The worker's own time is counted where it runs.
        const absl::Duration wall = score.draft_time;
        const absl::Duration cpu = score.cpu_time;
        absl::Duration merging;
        absl::Duration merging_cpu;
        {
          const Stopwatch watch(merging, merging_cpu);
          drafting.Commit(committed);
          verify.tree = drafting.Draft();
        }
        score.draft_time = wall + merging;
        score.cpu_time = cpu + merging_cpu;
      }
      verify.candidates = drafting.candidates();
      score.nodes += verify.tree.size();
      {
        const Stopwatch watch(score.verify_time, score.cpu_time);
        FORETOKEN_ASSIGN_OR_RETURN(result,
                                   verifier.Round(std::move(verify), {}));
      }
      ++score.rounds;
      score.tokens += static_cast<int64_t>(result.tokens.size());
    }
  }

  // One round of the target; `round` becomes what the draft worker hears next.
  absl::Status Verify(testing::InProcessVerifier& verifier,
                      const DraftTree& tree, DraftRound& round,
                      FinishReason& finish, Score& score) {
    RoundRequest verify;
    verify.length = round.length;
    FORETOKEN_ASSIGN_OR_RETURN(verify.tree,
                               TokenTree::Create(tree.tokens, tree.parents));
    round.verified.tree = verify.tree;
    absl::StatusOr<RoundResult> verified;
    {
      const Stopwatch watch(score.verify_time, score.cpu_time);
      verified = verifier.Round(std::move(verify), {});
    }
    FORETOKEN_ASSIGN_OR_RETURN(RoundResult result, std::move(verified));
    ++score.rounds;
    score.tokens += static_cast<int64_t>(result.tokens.size());
    finish = result.finish;
    round.length = result.length;
    round.verified.row_tokens = std::move(result.row_tokens);
    round.verified.path = std::move(result.path);
    score.matches.Add(round.verified.tree, round.verified.row_tokens);
    round.committed.clear();
    for (const SampledToken& token : result.tokens) {
      round.committed.push_back(token.token);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DraftAnswer> Draft(SessionId key, const DraftRound& round,
                                    Score& score) {
    if (key < 0) return DraftAnswer();
    const draft_worker::DraftEngineTotals before = draft_->snapshot().totals;
    absl::Duration cpu;
    absl::StatusOr<DraftAnswer> answer;
    {
      const Stopwatch watch(score.draft_time, cpu);
      answer = RunDraft(key, round);
    }
    score.draft_cpu_time += cpu;
    score.cpu_time += cpu;
    const draft_worker::DraftEngineTotals after = draft_->snapshot().totals;
    score.draft_passes += after.passes - before.passes;
    score.draft_rows += (after.rows - before.rows) / settings_.sessions;
    return answer;
  }

  absl::StatusOr<DraftAnswer> RunDraft(SessionId key, const DraftRound& round) {
    FORETOKEN_RETURN_IF_ERROR(draft_->Submit(key, round));
    for (const SessionId mate : mates_) {
      FORETOKEN_RETURN_IF_ERROR(draft_->Submit(mate, round));
    }
    DraftAnswer own;
    for (size_t answers = 0; answers <= mates_.size();) {
      draft_worker::DraftReport report = draft_->RunPass();
      for (const auto& failure : report.failures) return failure.status;
      answers += report.answers.size();
      for (auto& answer : report.answers) {
        if (answer.session == key) own = std::move(answer.answer);
      }
    }
    return own;
  }

  absl::Status CloseDraft(SessionId key) {
    for (const SessionId mate : mates_) {
      FORETOKEN_RETURN_IF_ERROR(draft_->Close(mate));
    }
    mates_.clear();
    return key < 0 ? absl::OkStatus() : draft_->Close(key);
  }

  // What earlier prompts' working pools gained, oldest first.
  std::vector<Phrase> WarmPhrases() const {
    std::vector<Phrase> phrases;
    if (!settings_.warm_start) return phrases;
    const std::vector<TokenId> all = pool_->Snapshot();
    const int beta = pool_->options().phrase_tokens;
    for (auto at = all.begin(); at != all.end(); at += beta) {
      phrases.emplace_back(at, at + beta);
    }
    return phrases;
  }

  const Settings settings_;
  const std::vector<std::vector<TokenId>> prompts_;
  const std::unique_ptr<verifier::VerifyEngine> target_;
  const std::unique_ptr<draft_worker::DraftEngine> keeping_;
  const std::unique_ptr<draft_worker::DraftEngine> recomputing_;
  draft_worker::DraftEngine* draft_ = nullptr;  // of the mode that runs
  std::vector<SessionId> mates_;  // draft beside the prompt's session
  testing::EngineDriver driver_;
  std::unique_ptr<PhrasePool> pool_;
  // For trees that are merged.
  std::shared_ptr<orchestrator::DraftEstimates> estimates_;
  std::shared_ptr<Drafter> fused_;
  std::shared_ptr<Drafter> phrases_;  // null: none
};

absl::StatusOr<std::vector<std::vector<TokenId>>> ReadPrompts(
    const Settings& settings) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto tokenizer,
                             Tokenizer::Load(settings.target));
  std::ifstream file(settings.prompts);
  std::vector<std::vector<TokenId>> prompts;
  std::string line;
  while (static_cast<int>(prompts.size()) < settings.max_prompts &&
         std::getline(file, line)) {
    std::string text;
    std::string why;
    if (!absl::CUnescape(line, &text, &why)) {
      return absl::InvalidArgumentError(absl::StrCat(
          settings.prompts, ": line ", prompts.size() + 1, ": ", why));
    }
    if (!text.empty()) prompts.push_back(tokenizer->EncodePrompt(text));
  }
  if (prompts.empty()) {
    return absl::NotFoundError(absl::StrCat("no prompt in ", settings.prompts));
  }
  return prompts;
}

absl::StatusOr<std::unique_ptr<Backend>> Load(const Settings& settings,
                                              const std::string& model,
                                              int max_rows) {
  BackendOptions options;
  options.model = model;
  options.precision = settings.precision;
  options.threads = settings.threads;
  options.max_rows = max_rows;
  return MakeBackend(options);
}

struct Row {
  std::string mode;
  Score score;                     // of the first run
  std::vector<double> speeds;      // tok/s
  std::vector<double> cpu_speeds;  // tokens a second of processor time
  // Seconds of drafting, by run.
  std::vector<double> draft_times;
  std::vector<double> draft_cpu_times;
  bool identical = true;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void PrintTable(const std::vector<Row>& rows) {
  std::printf(
      "| mode | rounds | accept length | draft passes/round | draft "
      "rows/round | nodes/round | tok/s | tok/CPU s | as off |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    const Score& score = row.score;
    const auto per_round = [&](int64_t sum) {
      return static_cast<double>(sum) / static_cast<double>(score.rounds);
    };
    absl::PrintF("| %s | %d | %.3f | %.2f | %.1f | %.1f | %.1f | %.1f | %s |\n",
                 row.mode.empty() ? "off" : row.mode, score.rounds,
                 per_round(score.tokens), per_round(score.draft_passes),
                 per_round(score.draft_rows), per_round(score.nodes),
                 Median(row.speeds), Median(row.cpu_speeds),
                 row.identical ? "yes" : "NO");
  }
}

// One object a line, all numbers sums over the prompts.
void PrintJson(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const Score& score = row.score;
    const Matches& matches = score.matches;
    absl::PrintF(
        "{\"mode\": \"%s\", \"rounds\": %d, \"tokens\": %d, \"nodes\": %d, "
        "\"passes\": %d, \"rows\": %d, \"draft_s\": %.4f, "
        "\"verify_s\": %.4f, \"tok_s\": [%s], \"tok_cpu_s\": [%s], \"as_off\": "
        "%s, \"draft_times\": [%s], \"draft_cpu_times\": [%s], "
        "\"drafted\": %d, \"accepted\": %d, \"later\": %d, \"runs\": [%s], "
        "\"made\": %d, \"tried\": %d, \"phrase_tokens\": %d, "
        "\"inspired\": %d, \"refined\": %d}\n",
        row.mode.empty() ? "off" : row.mode, score.rounds, score.tokens,
        score.nodes, score.draft_passes, score.draft_rows,
        absl::ToDoubleSeconds(score.draft_time),
        absl::ToDoubleSeconds(score.verify_time),
        absl::StrJoin(row.speeds, ", "), absl::StrJoin(row.cpu_speeds, ", "),
        row.identical ? "true" : "false", absl::StrJoin(row.draft_times, ", "),
        absl::StrJoin(row.draft_cpu_times, ", "), matches.drafted,
        matches.accepted, matches.later, absl::StrJoin(matches.runs, ", "),
        score.pool.phrases_made, score.pool.phrases_tried,
        score.pool.phrase_tokens, score.pool.inspired, score.pool.refined);
  }
}

// Plain decoding first, then the modes, in turn.
absl::StatusOr<std::vector<Row>> RunAll(const Settings& settings,
                                        Bench& bench) {
  std::vector<Row> rows(1);
  for (const auto& mode : absl::StrSplit(settings.modes, ';')) {
    rows.emplace_back().mode = std::string(mode);
  }
  for (int repeat = 0; repeat < settings.repeats; ++repeat) {
    for (Row& row : rows) {
      FORETOKEN_ASSIGN_OR_RETURN(Score score, bench.Run(row.mode));
      row.speeds.push_back(score.tokens_per_second());
      row.cpu_speeds.push_back(score.tokens_per_cpu_second());
      row.draft_times.push_back(absl::ToDoubleSeconds(score.draft_time));
      row.draft_cpu_times.push_back(
          absl::ToDoubleSeconds(score.draft_cpu_time));
      if (repeat > 0) continue;
      row.score = std::move(score);
      row.identical = row.score.outputs == rows[0].score.outputs;
    }
  }
  return rows;
}

absl::Status Run(int argc, char** argv) {
  Settings settings;
  Flags flags("bench_draft_worker", "Accept length against draft passes");
  flags.String("target", &settings.target, "Target model directory");
  flags.String("draft", &settings.draft, "Draft model directory");
  flags.String("prompts", &settings.prompts, "File with a prompt a line");
  flags.String("modes", &settings.modes, "Modes, separated by ;");
  flags.Choice("precision", &settings.precision, {"bf16", "fp32"},
               "Of both models");
  flags.Int("max-tokens", &settings.max_tokens, {2, 1 << 16}, "A prompt");
  flags.Int("max-prompts", &settings.max_prompts, {1, 1 << 16}, "In all");
  flags.Int("nodes", &settings.nodes, {1, 256}, "Maximum of a tree");
  flags.Int("threads", &settings.threads, {0, 1024}, "0: all processors");
  flags.Double("temperature", &settings.temperature, {0.0, 2.0}, "");
  flags.Int("repeats", &settings.repeats, {1, 1000}, "Runs, mode after mode");
  flags.Int("sessions", &settings.sessions, {1, 64}, "That draft at once");
  flags.Bool("json", &settings.json, "A JSON object a mode, not a table");
  flags.Bool("warm-start", &settings.warm_start,
             "Working pools begin with what earlier prompts' pools gained, and "
             "the fused drafter with earlier outputs");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));

  FORETOKEN_ASSIGN_OR_RETURN(auto prompts, ReadPrompts(settings));
  FORETOKEN_ASSIGN_OR_RETURN(auto target, Load(settings, settings.target, 512));
  FORETOKEN_ASSIGN_OR_RETURN(auto draft, Load(settings, settings.draft, 1024));
  FORETOKEN_ASSIGN_OR_RETURN(auto again, Load(settings, settings.draft, 1024));
  draft_worker::DraftEngineOptions options;
  options.vocab_limit = target->config().vocab_size;
  draft_worker::DraftEngineOptions recompute = options;
  recompute.keep_chain = false;
  Bench bench(
      settings, std::move(prompts),
      std::make_unique<verifier::VerifyEngine>(verifier::VerifyEngineOptions(),
                                               std::move(target)),
      std::make_unique<draft_worker::DraftEngine>(options, std::move(draft)),
      std::make_unique<draft_worker::DraftEngine>(recompute, std::move(again)));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Row> rows,
                             RunAll(settings, bench));
  settings.json ? PrintJson(rows) : PrintTable(rows);
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  const absl::Status status = foretoken::Run(argc, argv);
  return status.ok() ? 0 : foretoken::ExitWithError(status);
}
