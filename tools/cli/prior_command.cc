// foretoken prior build: builds a static prior for mode auto from a corpus
// (common/drafting/static_prior.h).
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/prior_builder.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/prior_output.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {
namespace {

struct Flags {
  std::vector<std::string> corpus;
  std::vector<std::string> exclude_ids;
  std::string tokenizer;
  PriorOutputFlags output;
};

absl::Status Build(const Flags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(flags.tokenizer));
  CorpusOptions source;
  source.paths = flags.corpus;
  source.exclude_id_files = flags.exclude_ids;
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusReader> reader,
                             CorpusReader::Open(std::move(source)));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<TokenId> corpus,
                             TokenisePriorCorpus(*reader, *tokenizer));
  // No model is loaded: the tokenizer alone decides ids and vocabulary.
  PriorBuildOptions model;
  model.vocab_size = tokenizer->vocab_size();
  model.tokenizer = tokenizer->fingerprint();
  return WritePrior(corpus, model, flags.output,
                    absl::StrFormat("%d documents, %d left out by id",
                                    reader->documents(), reader->excluded()));
}

}  // namespace

void AddPriorCommand(Command root) {
  const Command command = root.AddGroup("prior", "Static priors of mode auto");
  const auto [build, flags] = command.AddCommand<Flags>(
      "build", "Build a compact n-gram prior from a corpus", Build);
  build
      .Add("--corpus", flags.corpus,
           "JSONL files (rows with `output` or `text`), text files, "
           "or folders of them; gzip or plain")
      .Required();
  build.Add("--exclude-ids", flags.exclude_ids,
            "Recorded sets; corpus rows with one of their ids are "
            "left out");
  AddTokenizerOption(build, flags.tokenizer);
  AddPriorOutputFlags(build, flags.output);
  AddPriorGrowCommand(command);
}

}  // namespace foretoken::cli
