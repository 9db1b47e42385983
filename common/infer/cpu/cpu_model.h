// CpuModel: a checkpoint's weights, converted and packed for the CPU backend.
//
// Inside the backend every head has head_dim_padded dimensions and every other
// vector a multiple of kCpuPad, the rest zeros; weights are laid out to match.
// Immutable after Build; then thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CPU_CPU_MODEL_H_
#define FORETOKEN_COMMON_INFER_CPU_CPU_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/thread_pool.h"
#include "common/base/types.h"
#include "common/infer/backend.h"
#include "common/infer/cpu/packed_matrix.h"
#include "common/infer/model_config.h"
#include "common/infer/model_weights.h"

namespace foretoken {

struct CpuLayer {
  std::vector<float> attention_norm;  // [d_model padded]
  std::vector<float> ffn_norm;        // [d_model padded]
  std::vector<float> q_norm, k_norm;  // [head_dim padded], empty if none
  PackedMatrix qkv;                   // columns: q heads, k heads, v heads
  PackedMatrix output;                // k: heads
  PackedMatrix gate_up;  // blocks alternate: gate 0, up 0, gate 1, up 1, ...
  PackedMatrix down;
  // As the matrix's columns, padded to whole blocks; empty if none.
  std::vector<float> qkv_bias, output_bias, gate_up_bias, down_bias;
};

class CpuModel {
 public:
  static absl::StatusOr<CpuModel> Build(const ModelWeights& weights,
                                        Precision precision, ThreadPool& pool);

  const ModelConfig& config() const { return config_; }
  Precision precision() const { return precision_; }
  int64_t element_bytes() const {
    return precision_ == Precision::kBFloat16 ? 2 : 4;
  }
  int32_t d_model_padded() const { return d_model_padded_; }
  int32_t head_dim_padded() const { return head_dim_padded_; }
  int32_t d_ff_padded() const { return d_ff_padded_; }

  const std::vector<CpuLayer>& layers() const { return layers_; }
  const std::vector<float>& final_norm() const { return final_norm_; }
  const PackedMatrix& head() const { return head_; }
  // out: [d_model padded]
  void CopyEmbedding(TokenId token, float* out) const;

  const std::string& weights_digest() const { return weights_digest_; }
  // What one row streams through: packed matrices and one embedding row.
  int64_t bytes_per_pass() const;

 private:
  absl::Status BuildLayer(const LayerWeights& source, ThreadPool& pool,
                          CpuLayer& layer) const;
  absl::StatusOr<PackedMatrix> PackPlain(const WeightTensor& tensor,
                                         ThreadPool& pool) const;
  absl::StatusOr<PackedMatrix> PackQkv(const LayerWeights& source,
                                       ThreadPool& pool) const;
  absl::StatusOr<PackedMatrix> PackOutput(const WeightTensor& tensor,
                                          ThreadPool& pool) const;
  absl::StatusOr<PackedMatrix> PackGateUp(const LayerWeights& source,
                                          ThreadPool& pool) const;

  ModelConfig config_;
  Precision precision_ = Precision::kBFloat16;
  int32_t d_model_padded_ = 0;
  int32_t head_dim_padded_ = 0;
  int32_t d_ff_padded_ = 0;
  std::vector<CpuLayer> layers_;
  std::vector<float> final_norm_;
  HugeBuffer embedding_;  // [vocab_size, d_model], bf16 or fp32
  PackedMatrix head_;
  std::string weights_digest_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_CPU_MODEL_H_
