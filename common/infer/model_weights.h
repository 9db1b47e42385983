// ModelWeights: the tensors of a checkpoint, in their memory-mapped safetensors
// or GGUF files. Names and shapes are validated; nothing is converted yet.
//
// Thread-compatible: const methods, including digest(), may be called
// concurrently. Tensors borrow the maps that this object owns.
#ifndef FORETOKEN_COMMON_INFER_MODEL_WEIGHTS_H_
#define FORETOKEN_COMMON_INFER_MODEL_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/infer/model_config.h"
#include "common/infer/weight_types.h"

namespace foretoken {

// Row-major [rows, cols]; a vector has rows == 1. Empty (data == nullptr) if
// the model has no such tensor. `data` may be unaligned: read it through
// CopyTo, ConvertToFloat32 or memcpy.
struct WeightTensor {
  const uint8_t* data = nullptr;
  WeightType type = WeightType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  // Above 0, the rows of the query or key matrix (the elements of its bias) are
  // stored as GGUF has them: in each head of so many rows, 2i and 2i + 1 are
  // the rotary pair i and i + paired_rows / 2. CopyTo undoes the order.
  int64_t paired_rows = 0;

  bool present() const { return data != nullptr; }
  int64_t size() const { return rows * cols; }  // elements
  int64_t bytes() const { return WeightTypeBytes(type, size()); }
  // Converts elements [begin, begin + out.size()) to fp32, exactly. The range
  // must be inside the tensor.
  void CopyTo(int64_t begin, absl::Span<float> out) const;
  // Row `row` in its type, WeightTypeBytes(type, cols) bytes.
  const uint8_t* StoredRow(int64_t row) const {
    return data + StoredIndex(row) * WeightTypeBytes(type, cols);
  }

 private:
  int64_t StoredIndex(int64_t row) const;
  void CopyStored(int64_t begin, absl::Span<float> out) const;
};

struct LayerWeights {
  WeightTensor attention_norm;          // [d_model]
  WeightTensor q, k, v;                 // [heads * head_dim, d_model]
  WeightTensor q_bias, k_bias, v_bias;  // if qkv_bias
  WeightTensor q_norm, k_norm;          // [head_dim], if qk_norm
  WeightTensor o, o_bias;               // [d_model, n_heads * head_dim]
  WeightTensor ffn_norm;                // [d_model]
  WeightTensor gate, up;                // [d_ff, d_model]
  WeightTensor gate_bias, up_bias;      // if mlp_bias
  WeightTensor down, down_bias;         // [d_model, d_ff]
};

class ModelWeights {
 public:
  virtual ~ModelWeights() = default;

  // `path` is a GGUF file (the first one if it is split; see gguf_model.h) or a
  // Hugging Face directory: config.json, generation_config.json if present, and
  // model.safetensors or model.safetensors.index.json with its shards. Every
  // tensor of the model must be present with its shape, and no others except
  // rotary tables and an output matrix equal to the tied embedding. Errors name
  // file, tensor, what was found and what is wanted: NotFound for missing
  // files, InvalidArgument for bad ones, Unimplemented for unsupported
  // features.
  static absl::StatusOr<std::unique_ptr<ModelWeights>> Load(
      const std::string& path);

  // Seeded random weights of the given shape, for benchmarks and tests. Each
  // element is a function of seed, tensor and index alone. Matrices are uniform
  // with standard deviation 1/sqrt(cols) (for those that write to the residual
  // stream, divided by a further sqrt(2 n_layers)), so that activations stay
  // near 1. With a quantised type vectors are F32. InvalidArgument for a bad
  // shape, or a matrix whose rows are not whole blocks of the type;
  // ResourceExhausted above kMaxRandomBytes or if memory is short.
  static absl::StatusOr<std::unique_ptr<ModelWeights>> Random(
      const ModelConfig& config, WeightType type, uint64_t seed);

  static constexpr int64_t kMaxRandomBytes = int64_t{1} << 38;

  virtual const ModelConfig& config() const = 0;
  virtual const WeightTensor& embedding() const = 0;   // [vocab, d_model]
  virtual const WeightTensor& output() const = 0;      // the same if tied
  virtual const WeightTensor& final_norm() const = 0;  // [d_model]
  virtual absl::Span<const LayerWeights> layers() const = 0;  // [n_layers]

  // SHA-256 over names, types, shapes and bytes of all tensors, independent of
  // how they are split into files. Computed at the first call, which reads
  // every byte of the files, and keeps none of them in memory. Random weights:
  // over the seed in the place of the bytes, which are not read.
  virtual const Sha256Digest& digest() const = 0;

  // Gives the memory of a tensor back to the system: one that has been packed
  // need not stay beside its copy. Reading it afterwards gives the file's
  // bytes again; random weights are lost. Thread-compatible, not const.
  virtual void Release(const WeightTensor& /*tensor*/) {}

  // As Release, but only where the bytes can be read again: nothing is lost.
  virtual void Unload(const WeightTensor& /*tensor*/) const {}

  // Calls `read` with numbers of bytes: as the digest reads them, on its
  // thread, WeightBytes::all together; then as matrices are released or
  // unloaded, each once. Null stops that. Not during either.
  virtual void Watch(std::function<void(int64_t bytes)> /*read*/) {}
};

struct WeightBytes {
  int64_t all = 0;
  int64_t matrices = 0;  // of them
};
WeightBytes BytesOf(const ModelWeights& weights);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_MODEL_WEIGHTS_H_
