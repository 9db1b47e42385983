// foretoken grammar bench: how many JSON schemas are understood, how fast their
// masks are, and whether they are right.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/grammar/grammar_bench.h"
#include "tools/cli/grammar/xz_lines.h"
#include "tools/cli/shared_options.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

struct BenchOptions {
  std::string tokenizer;
  std::string schemas;
  bool json = false;
};

absl::Status Print(const GrammarBench& bench) {
  const Json summary = bench.Summary().at("summary");
  std::string text;
  for (const auto& [name, value] : summary.items()) {
    absl::StrAppend(&text, absl::StrFormat("%-18s", name),
                    value.is_number_float()
                        ? absl::StrFormat("%.1f", value.get<double>())
                        : DumpJson(value),
                    "\n");
  }
  return WriteOut(text);
}

absl::Status RunBench(const BenchOptions& options) {
  FORETOKEN_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer,
                             Tokenizer::LoadShared(options.tokenizer));
  GrammarBench bench(std::move(tokenizer));
  // With --json rows are printed as they come, so that an interrupted run keeps
  // its results.
  FORETOKEN_RETURN_IF_ERROR(ForEachLine(
      options.schemas, [&](absl::string_view line) -> absl::Status {
        FORETOKEN_ASSIGN_OR_RETURN(const GrammarBench::Row row,
                                   bench.Run(line));
        return options.json ? WriteJson(row.ToJson()) : absl::OkStatus();
      }));
  return options.json ? WriteJson(bench.Summary()) : Print(bench);
}

}  // namespace

void AddGrammarCommand(Command root) {
  const Command grammar =
      root.AddGroup("grammar", "Grammars of constrained output");
  const auto [bench, options] = grammar.AddCommand<BenchOptions>(
      "bench",
      "Feeds JSON instances to their schemas' grammars, token by token, with "
      "the full mask before each token",
      RunBench);
  AddTokenizerOption(bench, options.tokenizer);
  bench
      .Add("--schemas", options.schemas,
           "JSON lines {\"name\", \"schema\", \"tests\": [{\"valid\", "
           "\"data\"}]}, plain, gzip or xz")
      .Required();
  bench.AddFlag("--json", options.json, "One JSON line a schema");
}

}  // namespace foretoken::cli
