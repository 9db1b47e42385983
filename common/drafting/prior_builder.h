// Builds the file of a static prior (static_prior.h) from a tokenised corpus.
//
// Probabilities: interpolated absolute discounting; below the longest n-grams a
// continuation is counted by the distinct tokens seen before it (Kneser-Ney),
// which is what matters once the longer context is unknown. Pruning: the worth
// of an n-gram is the likelihood that the corpus loses without it, i.e. its
// occurrences times the log of its probability over that in its shorter
// context. The least valuable n-grams are dropped until the file fits; an
// n-gram stays as long as one that it begins.
//
// A base is a prior that the corpus is laid over: in every context, the corpus
// outweighs it by the evidence that it has there. The base keeps no counts, so
// that two corpora in one build are exact and a base is an estimate. All of its
// n-grams stay.
#ifndef FORETOKEN_COMMON_DRAFTING_PRIOR_BUILDER_H_
#define FORETOKEN_COMMON_DRAFTING_PRIOR_BUILDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/base/types.h"
#include "common/drafting/static_prior.h"

namespace foretoken {

struct PriorBuildOptions {
  int order = 5;                  // longest n-gram, 2..6
  uint64_t max_bytes = 10 << 20;  // size of the file
  int32_t vocab_size = 0;
  Sha256Digest tokenizer{};                 // its fingerprint
  std::shared_ptr<const StaticPrior> base;  // of that tokenizer; null: none
};

// Returns the bytes of the file. `corpus`: token ids, with kDocumentBorder
// between documents. InvalidArgument for an empty corpus, a bad id or option,
// a base of another vocabulary, or a max_bytes too small for the base, or for
// the unigrams alone.
absl::StatusOr<std::string> BuildPrior(absl::Span<const TokenId> corpus,
                                       const PriorBuildOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PRIOR_BUILDER_H_
