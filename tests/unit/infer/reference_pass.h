// A forward pass in double precision that rounds where the CPU backend rounds:
// the input of every product (int8 blocks before quantised weights, in
// super-blocks of one scale before those of 256 elements; else bf16),
// keys and values (bf16). Weights are decoded from their stored blocks here.
//
// Sizes are multiples of WatchedOps::kBlock.
#ifndef FORETOKEN_TESTS_UNIT_INFER_REFERENCE_PASS_H_
#define FORETOKEN_TESTS_UNIT_INFER_REFERENCE_PASS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/infer/model_weights.h"
#include "tests/unit/infer/watched_ops.h"

namespace foretoken::testing {

struct ReferenceMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  // Activations that share a scale, or 0 for products of bf16.
  int64_t scaled_together = 0;
  std::vector<double> values;  // [rows, cols]
  std::vector<double> bias;    // [rows], or empty
};

struct ReferenceLayer {
  std::vector<double> attention_norm, ffn_norm, q_norm, k_norm;
  ReferenceMatrix q, k, v, o, gate, up, down;
};

struct ReferenceModel {
  ModelConfig config;
  std::vector<double> frequencies;  // [head_dim / 2]
  std::vector<double> embedding;    // [vocab_size, d_model]
  std::vector<double> final_norm;
  ReferenceMatrix output;
  std::vector<ReferenceLayer> layers;
};

// With `pairs`, rows 2i and 2i + 1 of a head of q and k are the rotary pair i,
// as in a GGUF file of the llama architecture; otherwise i and i + half.
// `divisors` divide the rotary frequencies, if there are any.
ReferenceModel ReadReference(const ModelWeights& weights, bool pairs,
                             const std::vector<double>& divisors);

// Logits after every token of the chain, one row after the other, with the
// decisions of `ops`, whose last pass ran the same tokens. An error names the
// first block of activations that they did not have.
absl::StatusOr<std::vector<double>> ReferenceLogits(
    const ReferenceModel& model, const std::vector<TokenId>& tokens,
    const WatchedOps& ops);

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_REFERENCE_PASS_H_
