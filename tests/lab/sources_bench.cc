// What every source of mode auto's own drafter adds to the accept length when
// it is added last, and what candidates cost the target.
//
//   bench_sources --model PATH --prompts FILE [--chat auto] [--prior FILE]
//       [--max-tree-nodes 64] [--max-tokens 128] [--cost-pairs 60]
//
// The target verifies the drafter's trees, greedy, one request after another in
// one cache scope; all outputs must be equal. One JSON object a line: each
// choice of sources with its accept length and the times of the drafter, after
// passes of the target (which evict its memory from the caches) and without
// them; what each source adds, with a 95 % interval over the prompts; and the
// time of a round with candidates over that of the same round without.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/config/flags.h"
#include "common/drafting/draft_session.h"
#include "common/drafting/fused_drafter.h"
#include "common/infer/factory/backend_factory.h"
#include "common/text/tokenizer.h"
#include "services/verifier/core/verify_engine.h"
#include "tests/lab/accept_ratio.h"
#include "tests/support/in_process_verifier.h"
#include "tools/cli/prompt_file.h"

namespace foretoken {
namespace {

struct Settings {
  BackendOptions backend;
  std::string prompts;
  std::string chat = "none";
  std::string prior;
  int32_t nodes = 64;
  int32_t max_tokens = 128;
  int32_t cost_pairs = 60;
};

struct Sources {
  const char* left_out;
  bool request = true;
  bool history = true;
  bool prior = true;
  bool recycled = true;
};

constexpr Sources kAll = {"none"};
constexpr Sources kLeftOut[] = {{"request", false, true, true, true},
                                {"history", true, false, true, true},
                                {"prior", true, true, false, true},
                                {"recycled", true, true, true, false}};
constexpr Sources kNeither = {"prior, recycled", true, true, false, false};

struct Score {
  std::vector<ReplayCounts> counts;  // one per prompt, like outputs and rounds
  std::vector<std::vector<TokenId>> outputs;
  std::vector<std::vector<DraftRound>> rounds;
  std::vector<double> draft_us;
  std::vector<double> commit_us;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double MicrosecondsSince(absl::Time start) {
  return absl::ToDoubleMicroseconds(MonotonicNow() - start);
}

class Bench {
 public:
  Bench(const Settings& settings,
        std::unique_ptr<verifier::VerifyEngine> target,
        std::shared_ptr<const StaticPrior> prior,
        std::vector<std::vector<TokenId>> prompts)
      : settings_(settings),
        target_(std::move(target)),
        driver_(*target_),
        prior_(std::move(prior)),
        prompts_(std::move(prompts)) {}

  absl::StatusOr<Score> Run(const Sources& sources) {
    Score score;
    const std::unique_ptr<Drafter> drafter = MakeDrafter(sources);
    for (const std::vector<TokenId>& prompt : prompts_) {
      FORETOKEN_RETURN_IF_ERROR(RunPrompt(prompt, *drafter, score));
    }
    Print({{"left_out", sources.left_out},
           {"accept_length", AcceptLength(score.counts)},
           {"draft_us_p50", Median(DraftsAlone(sources, score))},
           {"draft_after_pass_us_p50", Median(score.draft_us)},
           {"commit_after_pass_us_p50", Median(score.commit_us)}});
    return score;
  }

  // Times of rounds with and without candidates, in turn, over trees of as many
  // nodes.
  absl::Status CompareCost() {
    std::vector<double> ratios;
    testing::InProcessVerifier verifier(driver_);
    SessionRequest request = Request(prompts_[0]);
    request.max_length = request.prompt_length + 4 * settings_.cost_pairs + 64;
    request.stop_tokens.clear();
    request.sampling.end_tokens.clear();
    FORETOKEN_ASSIGN_OR_RETURN(const PrefillResult prefill,
                               verifier.Open(request, request.tokens));
    int64_t length = prefill.length;
    std::vector<TokenId> tokens;
    std::vector<int32_t> parents;
    for (int node = 0; node < settings_.nodes; ++node) {
      tokens.push_back(node);
      parents.push_back(node == 0 ? kRootParent : (node - 1) / 3);
    }
    FORETOKEN_ASSIGN_OR_RETURN(const TokenTree tree,
                               TokenTree::Create(tokens, parents));
    for (int pair = 0; pair < settings_.cost_pairs; ++pair) {
      absl::Duration times[2];
      for (int turn = 0; turn < 2; ++turn) {
        const int with = (pair + turn) % 2;
        RoundRequest round;
        round.length = length;
        round.tree = tree;
        round.candidates = with == 1 ? kMaxRowCandidates : 0;
        FORETOKEN_ASSIGN_OR_RETURN(const RoundResult result,
                                   verifier.Round(std::move(round), {}));
        times[with] = result.stats.pass_time;
        length = result.length;
      }
      ratios.push_back(absl::FDivDuration(times[1], times[0]));
    }
    Print({{"round_with_candidates_over_without", Median(ratios)},
           {"rows", settings_.nodes + 1},
           {"pairs", settings_.cost_pairs}});
    return absl::OkStatus();
  }

  static void Print(const Json& line) {
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

 private:
  SessionRequest Request(const std::vector<TokenId>& prompt) const {
    SessionRequest request;
    request.tokens = prompt;
    request.prompt_length = static_cast<int64_t>(prompt.size());
    request.max_length = request.prompt_length + settings_.max_tokens;
    request.sampling.temperature = 0;
    request.stop_tokens = target_->model().eos_tokens;
    request.sampling.end_tokens = request.stop_tokens;
    request.want_row_tokens = true;
    return request;
  }

  std::unique_ptr<Drafter> MakeDrafter(const Sources& sources) const {
    FusedOptions options;
    options.use_request = sources.request;
    options.use_history = options.keep_history = sources.history;
    options.use_recycled = sources.recycled;
    if (sources.prior) options.prior = prior_;
    options.memory = std::make_shared<FusedMemory>(options.history_tokens);
    return MakeFusedDrafter(options);
  }

  // Times of the same drafts, one right after the other.
  std::vector<double> DraftsAlone(const Sources& sources,
                                  const Score& score) const {
    std::vector<double> times;
    const std::unique_ptr<Drafter> drafter = MakeDrafter(sources);
    DraftTree tree;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      drafter->StartRequest(prompts_[i]);
      for (const DraftRound& round : score.rounds[i]) {
        CommitRound(round, *drafter);
        const absl::Time start = MonotonicNow();
        drafter->Draft(settings_.nodes, tree);
        times.push_back(MicrosecondsSince(start));
      }
      drafter->EndRequest();
    }
    return times;
  }

  absl::Status RunPrompt(const std::vector<TokenId>& prompt, Drafter& drafter,
                         Score& score) {
    testing::InProcessVerifier verifier(driver_);
    FORETOKEN_ASSIGN_OR_RETURN(PrefillResult prefill,
                               verifier.Open(Request(prompt), prompt));
    ReplayCounts& counts = score.counts.emplace_back();
    std::vector<TokenId>& output = score.outputs.emplace_back();
    std::vector<DraftRound>& rounds = score.rounds.emplace_back();
    drafter.StartRequest(prompt);
    DraftRound round;
    round.length = prefill.length;
    round.committed = {prefill.tokens.at(0).token};
    FinishReason finish = prefill.finish;
    DraftTree tree;
    while (true) {
      output.insert(output.end(), round.committed.begin(),
                    round.committed.end());
      absl::Time start = MonotonicNow();
      CommitRound(round, drafter);
      score.commit_us.push_back(MicrosecondsSince(start));
      rounds.push_back(round);
      if (finish != FinishReason::kNone) break;
      start = MonotonicNow();
      drafter.Draft(settings_.nodes, tree);
      score.draft_us.push_back(MicrosecondsSince(start));

      RoundRequest verify;
      verify.length = round.length;
      FORETOKEN_ASSIGN_OR_RETURN(verify.tree,
                                 TokenTree::Create(tree.tokens, tree.parents));
      verify.candidates = drafter.reads_candidates() ? kMaxRowCandidates : 0;
      round.verified.tree = verify.tree;
      FORETOKEN_ASSIGN_OR_RETURN(RoundResult result,
                                 verifier.Round(std::move(verify), {}));
      finish = result.finish;
      round.length = result.length;
      round.verified.candidates = CandidateRows::Of(result.row_candidates);
      round.verified.row_tokens = std::move(result.row_tokens);
      round.verified.path = std::move(result.path);
      round.committed.clear();
      for (const SampledToken& token : result.tokens) {
        round.committed.push_back(token.token);
      }
      ++counts.rounds;
      counts.tokens += static_cast<int64_t>(result.tokens.size());
    }
    drafter.EndRequest();
    return absl::OkStatus();
  }

  const Settings& settings_;
  const std::unique_ptr<verifier::VerifyEngine> target_;
  testing::EngineDriver driver_;
  const std::shared_ptr<const StaticPrior> prior_;
  const std::vector<std::vector<TokenId>> prompts_;
};

// DataLoss if the outputs differ.
absl::Status PrintGain(const std::string& source, const Score& with,
                       const Score& without) {
  if (with.outputs != without.outputs) {
    return absl::DataLossError(
        absl::StrCat(source, ": the outputs with and without it differ"));
  }
  const AcceptRatio gain = CompareAcceptLength(with.counts, without.counts);
  Bench::Print({{"added_last", source},
                {"ratio", gain.ratio},
                {"low", gain.low},
                {"high", gain.high}});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<TokenId>>> ReadPrompts(
    const Settings& settings, const Tokenizer& tokenizer) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const cli::ChatFormat chat,
      cli::ChatFormat::Open(settings.chat, settings.backend.model));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<cli::FilePrompt> rows,
                             cli::ReadPromptFile(settings.prompts, chat));
  std::vector<std::vector<TokenId>> prompts;
  for (const cli::FilePrompt& row : rows) {
    prompts.push_back(row.text.has_value() ? tokenizer.EncodePrompt(*row.text)
                                           : row.ids);
  }
  return prompts;
}

absl::Status Main(int argc, char** argv) {
  Settings settings;
  settings.backend.kv_cache_tokens = 1 << 14;
  Flags flags("bench_sources",
              "What every source adds to the accept length, last.");
  settings.backend.AddFlags(flags);
  flags.String("prompts", &settings.prompts,
               "JSONL: prompt, prompt_ids or "
               "messages");
  flags.Choice("chat", &settings.chat, {"none", "chatml", "auto"},
               "Rendering of messages: auto for the model's own template, "
               "chatml, or none to refuse them");
  flags.String("prior", &settings.prior, "Static prior");
  flags.Int("max-tree-nodes", &settings.nodes, {1, 256}, "Nodes of a draft");
  flags.Int("max-tokens", &settings.max_tokens, {1, 1024},
            "Tokens of an output");
  flags.Int("cost-pairs", &settings.cost_pairs, {0, 10'000},
            "Pairs of rounds with and without candidates; 0: none");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  FORETOKEN_ASSIGN_OR_RETURN(const auto tokenizer,
                             Tokenizer::LoadShared(settings.backend.model));
  std::shared_ptr<const StaticPrior> prior;
  if (!settings.prior.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        prior, StaticPrior::Open(settings.prior, tokenizer->fingerprint()));
  }
  FORETOKEN_ASSIGN_OR_RETURN(auto prompts, ReadPrompts(settings, *tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                             MakeBackend(settings.backend));
  Bench bench(settings,
              std::make_unique<verifier::VerifyEngine>(
                  verifier::VerifyEngineOptions(), std::move(backend)),
              prior, std::move(prompts));
  FORETOKEN_ASSIGN_OR_RETURN(const Score all, bench.Run(kAll));
  Score no_prior;
  for (const Sources& sources : kLeftOut) {
    if (!sources.prior && prior == nullptr) continue;
    FORETOKEN_ASSIGN_OR_RETURN(Score without, bench.Run(sources));
    FORETOKEN_RETURN_IF_ERROR(PrintGain(sources.left_out, all, without));
    if (!sources.prior) no_prior = std::move(without);
  }
  if (prior != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(const Score neither, bench.Run(kNeither));
    FORETOKEN_RETURN_IF_ERROR(
        PrintGain("recycled, without a prior", no_prior, neither));
  }
  return settings.cost_pairs > 0 ? bench.CompareCost() : absl::OkStatus();
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  const absl::Status status = foretoken::Main(argc, argv);
  return status.ok() ? 0 : foretoken::ExitWithError(status);
}
