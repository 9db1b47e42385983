// foretoken-soak: loads a running system and checks every token.
//
//   foretoken-soak --server ADDR --text FILE,... --modes auto,ouroboros
//     --lossless-tokens 200000                  every mode equals `off`
//   foretoken-soak ... --requests 10000         while its parts are killed
//     --until FILE                              and until that file exists
//
// Prints one JSON object; exits with 1 if its `bad` is not 0.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/json.h"
#include "common/config/flags.h"
#include "common/config/version.h"
#include "tests/soak/client/soak.h"

namespace {

// One request at a time, and `many`.
std::vector<int> Concurrencies(int many) {
  return many == 1 ? std::vector<int>{1} : std::vector<int>{1, many};
}

}  // namespace

int main(int argc, char** argv) {
  foretoken::soak::SoakOptions options;
  options.modes = {"off",         "prompt_lookup", "ngram_trie", "crest",
                   "draft_model", "lookahead",     "ouroboros",  "auto"};
  int64_t lossless_tokens = 0;
  foretoken::soak::ChaosOptions chaos;
  int64_t seed = 1;
  bool table = false;
  foretoken::Flags flags("foretoken-soak",
                         "Loads a running system and checks every token.");
  flags.Version(foretoken::VersionLine("foretoken-soak"));
  flags.String("server", &options.server, "address of the orchestrator");
  options.channel.AddFlags(flags, "server");
  flags.List("text", &options.texts, "files that prompts are cut from");
  flags.List("modes", &options.modes, "modes to compare with off");
  flags.Int("max-tokens", &options.max_tokens, {1, 2048},
            "maximum output tokens");
  flags.Int("constrained-share", &options.constrained_share, {0, 1000},
            "one request in so many has a constraint; 0: none");
  flags.Int64("lossless-tokens", &lossless_tokens, {0, int64_t{1} << 40},
              "tokens to compare with off; 0: random cancels and deadlines");
  flags.Int("requests", &chaos.requests, {0, 1 << 30},
            "requests with random cancels and deadlines, at least");
  flags.String("until", &chaos.until, "continue until this file exists");
  flags.Int("concurrency", &chaos.concurrency, {1, 1024},
            "concurrent requests");
  flags.Duration("pause", &chaos.pause,
                 {absl::ZeroDuration(), absl::Minutes(10)},
                 "pause between two requests, but not with --lossless-tokens");
  flags.Int64("seed", &seed, {0, int64_t{1} << 40}, "random seed");
  flags.Bool("table", &table, "print a table instead of JSON");
  const absl::Status parsed = flags.Parse(argc, argv);
  if (!parsed.ok()) return foretoken::ExitWithError(parsed);
  options.seed = static_cast<uint64_t>(seed);

  const bool lossless = lossless_tokens > 0;
  const absl::StatusOr<foretoken::Json> report =
      lossless ? foretoken::soak::RunLossless(options, lossless_tokens,
                                              Concurrencies(chaos.concurrency))
               : foretoken::soak::RunChaos(options, chaos);
  if (!report.ok()) return foretoken::ExitWithError(report.status());
  if (!table) {
    std::printf("%s\n", foretoken::DumpJson(*report).c_str());
  } else if (lossless) {
    std::fputs(foretoken::soak::LosslessTable(*report).c_str(), stdout);
  } else {
    std::fputs(foretoken::soak::ChaosTable(*report).c_str(), stdout);
  }
  return report->value("bad", int64_t{0}) == 0 ? 0 : 1;
}
