// A draft and a target model in one process, without a network: accept length
// of the draft worker's modes beside the passes of the draft model that they
// cost, prompt by prompt, and whether the output is that of plain decoding.
//
//   bench_draft_worker --target DIR --draft DIR --prompts FILE
//       [--modes "draft_model:gamma=3;ouroboros:gamma=8"] [--warm-start]
//
// FILE holds a prompt a line. A round is one verification; prefill is none.
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/config/flags.h"
#include "common/drafting/phrase_pool.h"
#include "common/infer/factory/backend_factory.h"
#include "common/text/tokenizer.h"
#include "services/draft_worker/core/draft_engine.h"
#include "services/local/in_process_verifier.h"

namespace foretoken {
namespace {

constexpr char kModes[] =
    "draft_model:gamma=1;draft_model:gamma=2;draft_model:gamma=3;"
    "draft_model:gamma=5;draft_model:gamma=8;ouroboros:gamma=4;"
    "ouroboros:gamma=8;ouroboros:gamma=12;"
    "ouroboros:gamma=12,suffixes=0,inspiration=0,refinement=0;"
    "ouroboros:gamma=12,inspiration=0,refinement=0;"
    "ouroboros:gamma=12,inspiration=0;ouroboros:gamma=12,refinement=0";

// Phrases of other lengths are not kept for a warm start.
constexpr size_t kBeta = 8;

struct Settings {
  std::string target;
  std::string draft;
  std::string prompts;
  std::string modes = kModes;
  std::string precision = "bf16";
  int32_t max_tokens = 128;
  int32_t max_prompts = 32;
  int32_t threads = 0;
  double temperature = 0.0;
  bool warm_start = false;
};

struct Score {
  int64_t rounds = 0;
  int64_t tokens = 0;  // of rounds
  int64_t nodes = 0;
  int64_t draft_passes = 0;
  int64_t draft_rows = 0;
  absl::Duration draft_time;
  absl::Duration verify_time;
  std::vector<std::vector<TokenId>> outputs;
};

class Bench {
 public:
  Bench(const Settings& settings, std::vector<std::vector<TokenId>> prompts,
        std::unique_ptr<verifier::VerifyEngine> target,
        std::unique_ptr<draft_worker::DraftEngine> draft)
      : settings_(settings),
        prompts_(std::move(prompts)),
        target_(std::move(target)),
        draft_(std::move(draft)),
        driver_(*target_) {}

  // An empty mode is plain decoding.
  absl::StatusOr<Score> Run(const std::string& mode) {
    pool_.Clear();
    Score score;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      FORETOKEN_RETURN_IF_ERROR(RunPrompt(mode, i, score));
    }
    return score;
  }

 private:
  absl::Status RunPrompt(const std::string& mode, size_t index, Score& score) {
    const std::vector<TokenId>& prompt = prompts_[index];
    SessionRequest request;
    request.tokens = prompt;
    request.prompt_length = static_cast<int64_t>(prompt.size());
    request.max_length = request.prompt_length + settings_.max_tokens;
    request.sampling.temperature = static_cast<float>(settings_.temperature);
    request.sampling.seed = index;
    request.stop_tokens = target_->model().eos_tokens;
    request.sampling.end_tokens = request.stop_tokens;
    DraftOpen open;
    open.tokens = prompt;
    open.prompt_length = request.prompt_length;
    open.sampling = request.sampling;
    open.phrases = WarmPhrases();
    local::InProcessVerifier verifier(driver_);
    FORETOKEN_ASSIGN_OR_RETURN(PrefillResult prefill, verifier.Open(request));
    draft_worker::DraftKey key = -1;
    if (!mode.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(open.mode, ModeSpec::Parse(mode));
      FORETOKEN_ASSIGN_OR_RETURN(key, draft_->Open(std::move(open)));
    }
    std::vector<TokenId>& output = score.outputs.emplace_back();
    DraftRound round;
    round.max_nodes = 64;
    round.length = prefill.length;
    round.committed = {prefill.tokens.at(0).token};
    output = round.committed;
    FinishReason finish = prefill.finish;
    while (finish == FinishReason::kNone) {
      FORETOKEN_ASSIGN_OR_RETURN(DraftAnswer answer, Draft(key, round, score));
      for (const Phrase& phrase : answer.phrases) {
        if (phrase.size() == kBeta) pool_.Insert(phrase);
      }
      RoundRequest verify;
      verify.length = round.length;
      FORETOKEN_ASSIGN_OR_RETURN(
          verify.tree,
          TokenTree::Create(answer.tree.tokens, answer.tree.parents));
      round.verified.tree = verify.tree;
      const absl::Time start = absl::Now();
      FORETOKEN_ASSIGN_OR_RETURN(RoundResult result,
                                 verifier.Round(std::move(verify)));
      score.verify_time += absl::Now() - start;
      ++score.rounds;
      score.tokens += static_cast<int64_t>(result.tokens.size());
      finish = result.finish;
      round.length = result.length;
      round.verified.row_tokens = std::move(result.row_tokens);
      round.verified.path = std::move(result.path);
      round.committed.clear();
      for (const SampledToken& token : result.tokens) {
        round.committed.push_back(token.token);
        output.push_back(token.token);
      }
    }
    return key < 0 ? absl::OkStatus() : draft_->Close(key);
  }

  absl::StatusOr<DraftAnswer> Draft(draft_worker::DraftKey key,
                                    const DraftRound& round, Score& score) {
    if (key < 0) return DraftAnswer();
    const draft_worker::DraftEngineTotals before = draft_->totals();
    const absl::Time start = absl::Now();
    FORETOKEN_RETURN_IF_ERROR(draft_->Submit(key, round));
    while (true) {
      draft_worker::DraftReport report = draft_->RunPass();
      for (const auto& failure : report.failures) return failure.status;
      if (report.answers.empty()) continue;
      score.draft_time += absl::Now() - start;
      score.draft_passes += draft_->totals().passes - before.passes;
      score.draft_rows += draft_->totals().rows - before.rows;
      score.nodes += report.answers[0].answer.tree.size();
      return std::move(report.answers[0].answer);
    }
  }

  // What earlier prompts' working pools gained, oldest first.
  std::vector<Phrase> WarmPhrases() const {
    std::vector<Phrase> phrases;
    if (!settings_.warm_start) return phrases;
    const std::vector<TokenId> all = pool_.Snapshot();
    for (size_t at = 0; at < all.size(); at += kBeta) {
      phrases.emplace_back(all.begin() + static_cast<int64_t>(at),
                           all.begin() + static_cast<int64_t>(at + kBeta));
    }
    return phrases;
  }

  const Settings settings_;
  const std::vector<std::vector<TokenId>> prompts_;
  const std::unique_ptr<verifier::VerifyEngine> target_;
  const std::unique_ptr<draft_worker::DraftEngine> draft_;
  local::EngineDriver driver_;
  PhrasePool pool_{PhrasePoolOptions()};
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
    if (!line.empty()) prompts.push_back(tokenizer->EncodePrompt(line));
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

void Print(const std::string& mode, const Score& score, bool identical) {
  const double rounds = static_cast<double>(score.rounds);
  const double seconds =
      absl::ToDoubleSeconds(score.draft_time + score.verify_time);
  std::printf(
      "| %s | %lld | %.3f | %.2f | %.1f | %.1f | %.1f | %s |\n",
      mode.empty() ? "off" : mode.c_str(), static_cast<long long>(score.rounds),
      static_cast<double>(score.tokens) / rounds,
      static_cast<double>(score.draft_passes) / rounds,
      static_cast<double>(score.draft_rows) / rounds,
      static_cast<double>(score.nodes) / rounds,
      static_cast<double>(score.tokens) / seconds, identical ? "yes" : "NO");
  std::fflush(stdout);
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
  flags.Int("threads", &settings.threads, {0, 1024}, "0: all processors");
  flags.Double("temperature", &settings.temperature, {0.0, 2.0}, "");
  flags.Bool("warm-start", &settings.warm_start,
             "Working pools begin with what earlier prompts' pools gained");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));

  FORETOKEN_ASSIGN_OR_RETURN(auto prompts, ReadPrompts(settings));
  FORETOKEN_ASSIGN_OR_RETURN(auto target, Load(settings, settings.target, 512));
  FORETOKEN_ASSIGN_OR_RETURN(auto draft, Load(settings, settings.draft, 1024));
  draft_worker::DraftEngineOptions options;
  options.vocab_limit = target->config().vocab_size;
  Bench bench(
      settings, std::move(prompts),
      std::make_unique<verifier::VerifyEngine>(verifier::VerifyEngineOptions(),
                                               std::move(target)),
      std::make_unique<draft_worker::DraftEngine>(options, std::move(draft)));
  std::printf(
      "| mode | rounds | accept length | draft passes/round | draft "
      "rows/round | nodes/round | tok/s | as off |\n"
      "|---|---|---|---|---|---|---|---|\n");
  FORETOKEN_ASSIGN_OR_RETURN(const Score plain, bench.Run(""));
  Print("", plain, true);
  for (const auto& mode : absl::StrSplit(settings.modes, ';')) {
    FORETOKEN_ASSIGN_OR_RETURN(const Score score, bench.Run(std::string(mode)));
    Print(std::string(mode), score, score.outputs == plain.outputs);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  const absl::Status status = foretoken::Run(argc, argv);
  return status.ok() ? 0 : foretoken::ExitWithError(status);
}
