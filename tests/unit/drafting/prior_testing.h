// Small corpora and priors for tests.
#ifndef FORETOKEN_TESTS_UNIT_DRAFTING_PRIOR_TESTING_H_
#define FORETOKEN_TESTS_UNIT_DRAFTING_PRIOR_TESTING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/drafting/ngram_counts.h"
#include "common/drafting/prior_builder.h"
#include "common/drafting/static_prior.h"

namespace foretoken::testing {

inline Sha256Digest TestFingerprint() {
  Sha256Digest digest{};
  digest[0] = 0xab;
  return digest;
}

// Text with structure: each token mostly decides the next.
inline std::vector<TokenId> ChainCorpus(uint32_t seed, int documents,
                                        int32_t vocab_size) {
  std::mt19937 random(seed);
  std::vector<TokenId> corpus;
  for (int i = 0; i < documents; ++i) {
    TokenId token = static_cast<TokenId>(random() % vocab_size);
    for (int j = 0; j < 60; ++j) {
      corpus.push_back(token);
      token = random() % 4 != 0 ? (token * 7 + 3) % vocab_size
                                : static_cast<TokenId>(random() % vocab_size);
    }
    corpus.push_back(kDocumentBorder);
  }
  return corpus;
}

inline absl::StatusOr<std::string> BuildTestPrior(
    const std::vector<TokenId>& corpus, int32_t vocab_size,
    uint64_t max_bytes = 1 << 20, int order = 4) {
  PriorBuildOptions options;
  options.order = order;
  options.max_bytes = max_bytes;
  options.vocab_size = vocab_size;
  options.tokenizer = TestFingerprint();
  return BuildPrior(corpus, options);
}

inline absl::StatusOr<std::shared_ptr<const StaticPrior>> ParsePrior(
    const std::string& bytes) {
  return StaticPrior::FromBytes(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "p",
      TestFingerprint());
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_DRAFTING_PRIOR_TESTING_H_
