// Drafting modes with a draft model of a chosen agreement with its target: the
// target's own weights, disturbed (noisy_weights.h). Every output is compared
// with plain decoding.
//
//   bench_agreement --target PATH --prompts FILE [--chat auto]
//       --find 0.70,0.80,0.90,0.95
//   bench_agreement --target PATH --prompts FILE [--chat auto] --noise 0.31
//       [--modes "lookahead;draft_model:gamma=4;ouroboros"] [--warm-start]
//
// PATH: a model directory or a GGUF file; FILE: JSONL
// (tools/cli/prompt_file.h).
// --find prints, for each rate of greedy agreement on the target's outputs for
// these prompts, the relative noise that gives it. Otherwise one JSON object a
// line: the agreement on these prompts, then plain decoding and the modes. All
// counts, no times: they repeat to the digit on one instruction set.
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/config/flags.h"
#include "common/config/version.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/text/tokenizer.h"
#include "tests/lab/greedy_agreement.h"
#include "tests/lab/mode_run.h"
#include "tests/lab/noisy_weights.h"
#include "tests/lab/published_mode.h"
#include "tools/cli/prompt_file.h"

namespace foretoken {
namespace {

// Rates nearer than this are not sought; 0.01 is what the report promises.
constexpr double kTolerance = 0.004;
constexpr double kMostNoise = 1.0;
constexpr int kSteps = 16;

struct Settings {
  std::string target;
  std::string prompts;
  std::string chat = "none";
  std::string modes;
  std::string find;
  double noise = 0;
  int64_t seed = 1;
  int32_t threads = 1;
  ModeRunOptions run;
};

absl::StatusOr<std::unique_ptr<Backend>> MakeModel(
    std::unique_ptr<ModelWeights> weights, const Settings& settings,
    int32_t max_rows) {
  CpuOptions options;
  options.threads = settings.threads;
  options.max_rows = max_rows;
  options.kv_cache_tokens = 1 << 15;
  return MakeCpuBackend(std::move(weights), options);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeDraft(
    const std::shared_ptr<const ModelWeights>& weights,
    const Settings& settings, double noise) {
  return MakeModel(std::make_unique<NoisyWeights>(
                       weights, noise, static_cast<uint64_t>(settings.seed)),
                   settings, 1024);
}

absl::StatusOr<std::vector<std::vector<TokenId>>> ReadPrompts(
    const Settings& settings) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto tokenizer,
                             Tokenizer::LoadShared(settings.target));
  FORETOKEN_ASSIGN_OR_RETURN(
      const cli::ChatFormat chat,
      cli::ChatFormat::Open(settings.chat, settings.target));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<cli::FilePrompt> rows,
                             cli::ReadPromptFile(settings.prompts, chat));
  std::vector<std::vector<TokenId>> prompts;
  for (const cli::FilePrompt& row : rows) {
    prompts.push_back(row.text.has_value() ? tokenizer->EncodePrompt(*row.text)
                                           : row.ids);
  }
  return prompts;
}

std::vector<TargetText> TextsOf(
    const std::vector<std::vector<TokenId>>& prompts,
    const std::vector<std::vector<TokenId>>& outputs) {
  std::vector<TargetText> texts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    TargetText& text = texts.emplace_back();
    text.tokens = prompts[i];
    text.prompt_length = static_cast<int64_t>(prompts[i].size());
    text.tokens.insert(text.tokens.end(), outputs[i].begin(), outputs[i].end());
  }
  return texts;
}

void Print(const Json& row) {
  std::printf("%s\n", DumpJson(row).c_str());
  std::fflush(stdout);
}

// Bins that held passes, as [first rows of the bin, passes, rows].
Json BinsOf(const RowCounts& counts) {
  Json bins = Json::array();
  for (size_t i = 0; i < counts.bins().size(); ++i) {
    const RowCounts::Bin& bin = counts.bins()[i];
    if (bin.passes == 0) continue;
    bins.push_back({RowCounts::kEdges[i], bin.passes, bin.rows});
  }
  return bins;
}

void PrintMode(const std::string& mode, const ModeCounts& counts, bool as_off) {
  Print({{"mode", mode},
         {"as_off", as_off},
         {"rounds", counts.rounds},
         {"tokens", counts.tokens},
         {"nodes", counts.nodes},
         {"target_bins", BinsOf(counts.target)},
         {"draft_bins", BinsOf(counts.draft)},
         {"drafted", counts.matches.drafted},
         {"accepted", counts.matches.accepted},
         {"later", counts.matches.later},
         {"runs", counts.matches.runs},
         {"inspired", counts.phrases.inspired},
         {"refined", counts.phrases.refined},
         {"phrase_tokens", counts.phrases.phrase_tokens}});
}

absl::Status PrintNoise(const Settings& settings,
                        const std::shared_ptr<const ModelWeights>& weights,
                        absl::Span<const TargetText> texts) {
  const auto rate_of = [&](double noise) -> absl::StatusOr<double> {
    FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> draft,
                               MakeDraft(weights, settings, noise));
    FORETOKEN_ASSIGN_OR_RETURN(const Agreement agreement,
                               MeasureAgreement(*draft, texts));
    return agreement.rate();
  };
  for (const auto& part : absl::StrSplit(settings.find, ',')) {
    double wanted = 0;
    if (!absl::SimpleAtod(part, &wanted) || !(wanted > 0 && wanted < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--find: \"", part, "\", want rates within 0 and 1"));
    }
    FORETOKEN_ASSIGN_OR_RETURN(
        const FoundNoise found,
        FindNoise(rate_of, wanted, kTolerance, kMostNoise, kSteps));
    Print({{"wanted", wanted},
           {"noise", found.relative},
           {"agreement", found.rate}});
  }
  return absl::OkStatus();
}

// A prompt leaves room for an output.
absl::Status CheckPrompts(const std::vector<std::vector<TokenId>>& prompts,
                          const ModelConfig& config) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (static_cast<int64_t>(prompts[i].size()) + 2 > config.max_positions) {
      return absl::InvalidArgumentError(absl::StrCat(
          "prompt ", i + 1, " has ", prompts[i].size(),
          " tokens, but the target's context ", config.max_positions));
    }
  }
  return absl::OkStatus();
}

absl::Status Main(int argc, char** argv) {
  Settings settings;
  Flags flags("bench_agreement",
              "Drafting modes with a draft of a chosen agreement.");
  flags.String("target", &settings.target, "Model directory or GGUF file");
  flags.String("prompts", &settings.prompts,
               "JSONL: prompt, prompt_ids or messages");
  flags.Choice("chat", &settings.chat, {"none", "chatml", "auto"},
               "Rendering of messages");
  flags.String("find", &settings.find,
               "Rates of agreement, separated by commas: find their noise");
  flags.Double("noise", &settings.noise, {0.0, kMostNoise},
               "Of the draft's matrices, relative to their weights");
  flags.Int64("seed", &settings.seed, {0, int64_t{1} << 62}, "Of the noise");
  flags.String("modes", &settings.modes, "Modes, separated by ;");
  flags.Int("max-tokens", &settings.run.max_tokens, {2, 4096},
            "Tokens of an output");
  flags.Int("nodes", &settings.run.max_nodes, {1, 256}, "Nodes of a draft");
  flags.Int("threads", &settings.threads, {0, 1024}, "0: all processors");
  flags.Bool("warm-start", &settings.run.warm_start,
             "Working pools begin with what earlier prompts' pools gained");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  std::vector<std::pair<std::string, Mode>> modes;
  for (const auto& text :
       absl::StrSplit(settings.modes, ';', absl::SkipEmpty())) {
    FORETOKEN_ASSIGN_OR_RETURN(Mode mode, ParsePublished(text));
    modes.emplace_back(text, std::move(mode));
  }

  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<ModelWeights> own,
                             ModelWeights::Load(settings.target));
  FORETOKEN_ASSIGN_OR_RETURN(const auto prompts, ReadPrompts(settings));
  FORETOKEN_RETURN_IF_ERROR(CheckPrompts(prompts, own->config()));
  FORETOKEN_ASSIGN_OR_RETURN(auto target_model,
                             MakeModel(std::move(own), settings, 512));
  FORETOKEN_ASSIGN_OR_RETURN(const std::shared_ptr<const ModelWeights> weights,
                             ModelWeights::Load(settings.target));
  verifier::VerifyEngine target(verifier::VerifyEngineOptions(),
                                std::move(target_model));
  FORETOKEN_ASSIGN_OR_RETURN(
      const ModeCounts off,
      ModeRun(target, nullptr, settings.run).Run(Mode(), prompts));
  const std::vector<TargetText> texts = TextsOf(prompts, off.outputs);
  if (!settings.find.empty()) return PrintNoise(settings, weights, texts);

  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> draft_model,
                             MakeDraft(weights, settings, settings.noise));
  FORETOKEN_ASSIGN_OR_RETURN(const Agreement agreement,
                             MeasureAgreement(*draft_model, texts));
  Print({{"noise", settings.noise},
         {"positions", agreement.positions},
         {"equal", agreement.equal}});
  PrintMode("off", off, true);
  draft_worker::DraftEngineOptions options;
  options.max_rows_per_session = 512;
  draft_worker::DraftEngine draft(options, std::move(draft_model));
  ModeRun run(target, &draft, settings.run);
  for (const auto& [text, mode] : modes) {
    FORETOKEN_ASSIGN_OR_RETURN(const ModeCounts counts, run.Run(mode, prompts));
    PrintMode(text, counts, counts.outputs == off.outputs);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  // For the provenance of what is counted (tests/lab/provenance.py).
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("bench_agreement (commit %s)\n", foretoken::kCommit);
    return 0;
  }
  const absl::Status status = foretoken::Main(argc, argv);
  return status.ok() ? 0 : foretoken::ExitWithError(status);
}
