#include "tools/cli/prior_output.h"

#include <unistd.h>

#include <filesystem>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"
#include "common/drafting/prior_corpus.h"
#include "common/drafting/static_prior.h"

namespace foretoken::cli {
namespace {

// Adds what the flags say to `model`.
absl::StatusOr<PriorBuildOptions> OptionsOf(PriorBuildOptions model,
                                            const PriorOutputFlags& flags) {
  model.order = flags.order;
  model.max_bytes = static_cast<uint64_t>(flags.max_bytes);
  if (flags.base.empty()) return model;
  FORETOKEN_ASSIGN_OR_RETURN(model.base,
                             StaticPrior::Open(flags.base, model.tokenizer));
  // A model's vocabulary may be padded beyond its tokenizer's.
  model.vocab_size = model.base->vocab_size();
  // The base's vocabulary wins, as its n-grams stay.
  return model;
}

}  // namespace

void AddPriorOutputFlags(Command command, PriorOutputFlags& flags) {
  command
      .Add("--max-bytes", flags.max_bytes,
           "Maximum size of the file; the least useful n-grams are "
           "dropped")
      .InRange(int64_t{1}, std::numeric_limits<int64_t>::max());
  command.Add("--order", flags.order, "Longest n-gram")
      .InRange(2, StaticPrior::kMaxOrder);
  command.Add("--base", flags.base,
              "Prior to build upon, where its corpus is not at hand: "
              "all of its n-grams stay, and what is counted here "
              "outweighs them");
  command.Add("--out", flags.out, "File to write").Required();
}

absl::StatusOr<std::vector<TokenId>> TokenisePriorCorpus(
    CorpusReader& reader, const Tokenizer& tokenizer) {
  Progress bar("prior: tokenise", reader.total_bytes(), "B",
               isatty(STDERR_FILENO) != 0);
  FORETOKEN_ASSIGN_OR_RETURN(
      std::vector<TokenId> corpus,
      ReadPriorCorpus(reader, tokenizer,
                      [&](uint64_t done) { bar.Set(done); }));
  // Skipped rows and compressed input leave the bar short of its end.
  bar.Set(reader.total_bytes());
  return corpus;
}

absl::Status CheckPriorOutput(const PriorBuildOptions& model,
                              const PriorOutputFlags& flags) {
  const std::filesystem::path folder =
      std::filesystem::path(flags.out).parent_path();
  std::error_code error;
  if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(
        absl::StrCat("--out: ", folder.string(), ": no such folder"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const PriorBuildOptions options,
                             OptionsOf(model, flags));
  // One token is enough to run every check of the options.
  const TokenId any[] = {0};
  return BuildPrior(any, options).status();
}

absl::Status WritePrior(absl::Span<const TokenId> corpus,
                        const PriorBuildOptions& model,
                        const PriorOutputFlags& flags,
                        absl::string_view source) {
  FORETOKEN_ASSIGN_OR_RETURN(const PriorBuildOptions options,
                             OptionsOf(model, flags));
  FORETOKEN_ASSIGN_OR_RETURN(const std::string bytes,
                             BuildPrior(corpus, options));
  // Atomically: a drafter that opens the file meanwhile sees the old prior or
  // the new one.
  FORETOKEN_RETURN_IF_ERROR(WriteFileAtomically(flags.out, bytes));
  // Read the file back: this validates exactly what will be served.
  FORETOKEN_ASSIGN_OR_RETURN(const std::shared_ptr<const StaticPrior> prior,
                             StaticPrior::Open(flags.out, model.tokenizer));
  absl::PrintF(
      "%s: %d bytes, %d n-grams (%.2f bytes each), order %d, from %s\n",
      flags.out, prior->bytes(), prior->entries(),
      static_cast<double>(prior->bytes()) /
          static_cast<double>(prior->entries()),
      prior->order(), source);
  return absl::OkStatus();
}

}  // namespace foretoken::cli
