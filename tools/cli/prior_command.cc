// foretoken prior build: builds a static prior for mode auto from a corpus
// (common/drafting/static_prior.h).
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/prior_builder.h"
#include "common/drafting/prior_corpus.h"
#include "common/drafting/static_prior.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {
namespace {

struct Flags {
  std::vector<std::string> corpus;
  std::vector<std::string> exclude_ids;
  std::string tokenizer;
  std::string out;
  int64_t max_bytes = 10'000'000;
  int order = PriorBuildOptions().order;
};

absl::Status Build(const Flags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(flags.tokenizer));
  CorpusOptions source;
  source.paths = flags.corpus;
  source.exclude_id_files = flags.exclude_ids;
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusReader> reader,
                             CorpusReader::Open(std::move(source)));
  std::vector<TokenId> corpus;
  {
    Progress bar("prior: tokenise", reader->total_bytes(), "B",
                 isatty(STDERR_FILENO) != 0);
    FORETOKEN_ASSIGN_OR_RETURN(
        corpus, ReadPriorCorpus(*reader, *tokenizer,
                                [&](uint64_t done) { bar.Set(done); }));
    bar.Set(reader->total_bytes());
  }
  PriorBuildOptions options;
  options.order = flags.order;
  options.max_bytes = static_cast<uint64_t>(flags.max_bytes);
  options.vocab_size = tokenizer->vocab_size();
  options.tokenizer = tokenizer->fingerprint();
  FORETOKEN_ASSIGN_OR_RETURN(const std::string bytes,
                             BuildPrior(corpus, options));
  FORETOKEN_RETURN_IF_ERROR(WriteFileAtomically(flags.out, bytes));
  // Read the file back: this validates exactly what will be served.
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::shared_ptr<const StaticPrior> prior,
      StaticPrior::Open(flags.out, tokenizer->fingerprint()));
  absl::PrintF(
      "%s: %d bytes, %d n-grams (%.2f bytes each), order %d, from %d "
      "documents, %d left out by id\n",
      flags.out, prior->bytes(), prior->entries(),
      static_cast<double>(prior->bytes()) /
          static_cast<double>(prior->entries()),
      prior->order(), reader->documents(), reader->excluded());
  return absl::OkStatus();
}

}  // namespace

void AddPriorCommand(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("prior", "Static priors of mode auto");
  command->require_subcommand(1);
  const auto [build, flags] =
      AddCommand<Flags>(*command, run, "build",
                        "Build a compact n-gram prior from a corpus", Build);
  build
      .add_option("--corpus", flags.corpus,
                  "JSONL files (rows with `output` or `text`), text files, "
                  "or folders of them; gzip or plain")
      ->required();
  build.add_option("--exclude-ids", flags.exclude_ids,
                   "Recorded sets; corpus rows with one of their ids are "
                   "left out");
  AddTokenizerOption(build, flags.tokenizer);
  build
      .add_option("--max-bytes", flags.max_bytes,
                  "Maximum size of the file; the least useful n-grams are "
                  "dropped")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()));
  build.add_option("--order", flags.order, "Longest n-gram")
      ->check(CLI::Range(2, StaticPrior::kMaxOrder));
  build.add_option("--out", flags.out, "File to write")->required();
}

}  // namespace foretoken::cli
