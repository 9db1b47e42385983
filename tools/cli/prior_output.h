// The file that `foretoken prior` writes.
#ifndef FORETOKEN_TOOLS_CLI_PRIOR_OUTPUT_H_
#define FORETOKEN_TOOLS_CLI_PRIOR_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/prior_builder.h"
#include "common/text/tokenizer.h"
#include "tools/cli/app.h"

namespace foretoken::cli {

struct PriorOutputFlags {
  std::string out;
  std::string base;  // path; empty: none
  int64_t max_bytes = 10'000'000;
  int order = PriorBuildOptions().order;
};

// --out, required, --max-bytes, --order and --base.
void AddPriorOutputFlags(Command command, PriorOutputFlags& flags);

// Fails as WritePrior would for reasons other than the corpus, before hours are
// spent on one: a folder that does not exist, a base that cannot be used, a
// size that is too small.
absl::Status CheckPriorOutput(const PriorBuildOptions& model,
                              const PriorOutputFlags& flags);

// Reads and tokenises a corpus behind a progress bar.
absl::StatusOr<std::vector<TokenId>> TokenisePriorCorpus(
    CorpusReader& reader, const Tokenizer& tokenizer);

// Builds the prior of a corpus (BuildPrior), replaces the file atomically and
// prints a line about it, which ends in `source`. `model`: vocabulary and
// fingerprint; order, size and base are those of the flags.
absl::Status WritePrior(absl::Span<const TokenId> corpus,
                        const PriorBuildOptions& model,
                        const PriorOutputFlags& flags,
                        absl::string_view source);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_PRIOR_OUTPUT_H_
