// foretoken-soak: asks a running system for much, and checks every token.
//
//   foretoken-soak --server ADDR --text FILE,... --modes auto,ouroboros
//     --lossless-tokens 200000                  every mode equals `off`
//   foretoken-soak ... --requests 10000         while someone kills its parts
//     --until FILE                              and till there is that file
//
// Prints one JSON object; exits with 1 where `bad` in it is not 0.
#include <cstdio>
#include <string>
#include <vector>

#include "common/config/flags.h"
#include "tools/soak_client/soak.h"

namespace {

// Alone, and so many at once.
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
  foretoken::Flags flags("foretoken-soak", "Checks every token, for long.");
  flags.String("server", &options.server, "address of the orchestrator");
  flags.List("text", &options.texts, "files that prompts are cut from");
  flags.List("modes", &options.modes, "modes to compare with off");
  flags.Int("max-tokens", &options.max_tokens, {1, 2048}, "longest output");
  flags.Int64("lossless-tokens", &lossless_tokens, {0, int64_t{1} << 40},
              "tokens to compare with off; 0: random cancels and deadlines");
  flags.Int("requests", &chaos.requests, {0, 1 << 30},
            "requests with random cancels and deadlines, at least");
  flags.String("until", &chaos.until, "go on until there is this file");
  flags.Int("concurrency", &chaos.concurrency, {1, 1024}, "requests at once");
  flags.Int64("seed", &seed, {0, int64_t{1} << 40},
              "of everything that is random here");
  flags.Bool("table", &table, "a table instead of JSON");
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
