// Builds the file of a static prior (static_prior.h) from a tokenised corpus.
//
// Probabilities: absolute discounting, interpolated; below the longest n-grams
// a continuation counts by the kinds of tokens seen before it (Kneser-Ney),
// which is what matters once the longer context is unknown.
// Pruning: an n-gram is worth the likelihood that the corpus loses without it,
// its occurrences times the logarithm of how much likelier it is than its
// shorter context says. The least valuable go until the file fits; an n-gram
// stays as long as one that it begins does.
#ifndef FORETOKEN_COMMON_DRAFTING_PRIOR_BUILDER_H_
#define FORETOKEN_COMMON_DRAFTING_PRIOR_BUILDER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/base/types.h"

namespace foretoken {

struct PriorBuildOptions {
  int order = 5;                  // longest n-gram, 2..6
  uint64_t max_bytes = 10 << 20;  // of the file
  int32_t vocab_size = 0;
  Sha256Digest tokenizer{};  // fingerprint
};

// The bytes of the file. `corpus`: token ids, kDocumentBorder between
// documents. InvalidArgument for an empty corpus, a bad id or option, or a
// max_bytes that the unigrams alone exceed.
absl::StatusOr<std::string> BuildPrior(absl::Span<const TokenId> corpus,
                                       const PriorBuildOptions& options);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PRIOR_BUILDER_H_
