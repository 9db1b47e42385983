// CpuModel: a checkpoint's weights, packed for the CPU backend.
//
// Quantised matrices stay in their types, except in fp32 precision, where they
// are expanded; others are converted to the precision. So are the matrices that
// one product joins (q, k and v; gate and up) unless all are quantised, and the
// attention's output matrix where heads are not whole blocks of activations.
// Before all that, CpuModelOptions::conversion may give every matrix but those
// attention outputs another type, one matrix at a time.
//
// Inside the backend every head has head_dim_padded dimensions and every other
// vector a multiple of kCpuPad, the rest zeros; weights are laid out to match.
// Immutable after Build; then thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CPU_CPU_MODEL_H_
#define FORETOKEN_COMMON_INFER_CPU_CPU_MODEL_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/huge_buffer.h"
#include "common/base/thread_pool.h"
#include "common/base/types.h"
#include "common/infer/backend.h"
#include "common/infer/cpu/packed_matrix.h"
#include "common/infer/cpu/weight_arena.h"
#include "common/infer/model_config.h"
#include "common/infer/model_weights.h"
#include "common/infer/weight_conversion.h"

namespace foretoken {

struct CpuLayer {
  std::vector<float> attention_norm;  // [d_model padded]
  std::vector<float> ffn_norm;        // [d_model padded]
  std::vector<float> q_norm, k_norm;  // [head_dim padded], empty if none
  PackedMatrix qkv;                   // columns: see QkvColumns
  PackedMatrix output;                // k: heads
  PackedMatrix gate_up;  // blocks alternate: gate 0, up 0, gate 1, up 1, ...
  PackedMatrix down;
  // As the matrix's columns, padded to whole blocks; empty if none.
  std::vector<float> qkv_bias, output_bias, gate_up_bias, down_bias;
};

// Where q, k and v begin among the columns of their product: each on a block of
// its own, because their types may differ.
struct QkvColumns {
  int64_t keys = 0;
  int64_t values = 0;
  int64_t total = 0;
};

struct CpuModelOptions {
  Precision precision = Precision::kBFloat16;
  WeightConversion conversion = WeightConversion::kKeep;
  // Rows of the LM head that are computed, by ChooseHeadIds; 0: all.
  int32_t head_size = 0;
  std::vector<TokenId> head_first = {};
};

class CpuModel {
 public:
  // Tensors are released one by one as they are packed.
  static absl::StatusOr<CpuModel> Build(std::unique_ptr<ModelWeights> weights,
                                        const CpuModelOptions& options,
                                        ThreadPool& pool);

  const ModelConfig& config() const { return config_; }
  Precision precision() const { return precision_; }
  // As the option was resolved: never kAuto.
  WeightConversion conversion() const { return conversion_; }
  int32_t d_model_padded() const { return d_model_padded_; }
  int32_t head_dim_padded() const { return head_dim_padded_; }
  int32_t d_ff_padded() const { return d_ff_padded_; }
  const QkvColumns& qkv_columns() const { return qkv_columns_; }

  const std::vector<CpuLayer>& layers() const { return layers_; }
  const std::vector<float>& final_norm() const { return final_norm_; }
  // Column i gives the logit of head_ids()[i], or of id i if that is empty.
  const PackedMatrix& head() const { return head_; }
  absl::Span<const TokenId> head_ids() const { return head_ids_; }  // ascending
  bool InHead(TokenId token) const {
    return head_ids_.empty() ||
           std::binary_search(head_ids_.begin(), head_ids_.end(), token);
  }
  // out: [d_model padded]
  void CopyEmbedding(TokenId token, float* out) const;

  const std::string& weights_digest() const { return weights_digest_; }
  // Types of the packed matrices, each once: "bf16", "q4_K+q6_K".
  std::string MatrixTypes() const;
  // Bytes that a pass of one row reads: packed matrices and one embedding row.
  int64_t bytes_per_pass() const;
  // Bytes of the same matrices as they are stored, the whole head among them.
  int64_t stored_bytes() const { return stored_bytes_; }
  // Multiply-adds of one row, by the type of the activations.
  std::array<int64_t, kActivationTypes> products_per_row() const;

 private:
  // A matrix on its way into its packed form.
  struct Source {
    WeightTensor tensor;
    HugeBuffer memory;  // of one that was converted
  };

  absl::Status BuildHead(ThreadPool& pool);
  absl::Status BuildEmbedding(ThreadPool& pool);
  // `tensor` in the type that it is converted to, if it is; the stored one is
  // then released.
  absl::StatusOr<Source> Convert(absl::string_view name,
                                 const WeightTensor& tensor, ThreadPool& pool);
  absl::Status BuildLayer(const LayerWeights& source, ThreadPool& pool,
                          CpuLayer& layer);
  std::vector<const PackedMatrix*> Matrices() const;
  void AddBiases(const LayerWeights& source, CpuLayer& layer) const;
  // True if the product of these tensors runs on their own types.
  bool StaysQuantised(std::initializer_list<const WeightTensor*> tensors) const;
  MatrixType float_type() const {
    return precision_ == Precision::kBFloat16 ? MatrixType::kBFloat16
                                              : MatrixType::kFloat32;
  }
  absl::StatusOr<PackedMatrix> PackPlain(const WeightTensor& tensor,
                                         ThreadPool& pool);
  // Row rows[c] of the tensor in column c; row c if `rows` is empty.
  absl::StatusOr<PackedMatrix> PackRows(const WeightTensor& tensor,
                                        absl::Span<const TokenId> rows,
                                        ThreadPool& pool);
  absl::StatusOr<PackedMatrix> PackQkv(const LayerWeights& source,
                                       ThreadPool& pool);
  absl::StatusOr<PackedMatrix> PackOutput(const WeightTensor& tensor,
                                          ThreadPool& pool);
  absl::StatusOr<PackedMatrix> PackGateUp(const LayerWeights& source,
                                          ThreadPool& pool);

  ModelConfig config_;
  Precision precision_ = Precision::kBFloat16;
  WeightConversion conversion_ = WeightConversion::kKeep;
  int64_t stored_bytes_ = 0;
  int32_t d_model_padded_ = 0;
  int32_t head_dim_padded_ = 0;
  int32_t d_ff_padded_ = 0;
  QkvColumns qkv_columns_;
  std::vector<CpuLayer> layers_;
  std::vector<float> final_norm_;
  // Rows of the embedding are read out of
  // - the columns of the head if it is tied, whole and of the same type,
  // - stored_embedding_, a copy in embedding_ of one that stays quantised,
  // - or embedding_, [vocab_size, d_model] in bf16 or fp32.
  bool embedding_in_head_ = false;
  WeightTensor stored_embedding_;
  HugeBuffer embedding_;
  std::unique_ptr<ModelWeights> weights_;  // during Build
  PackedMatrix head_;
  std::vector<TokenId> head_ids_;
  WeightArena arena_;
  std::string weights_digest_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_CPU_MODEL_H_
