#include <algorithm>

#include "common/infer/cuda/kernels/gemm_index.h"
#include "common/infer/cuda/kernels/launch.h"
#include "common/infer/cuda/kernels/weight_store.h"

namespace foretoken::device {
namespace {

constexpr int64_t kStagingBytes = int64_t{64} << 20;
constexpr int kPackThreads = 256;
constexpr int kTensors = static_cast<int>(DeviceTensor::kDownBias) + 1;
constexpr int64_t kAlignment = 256;

// Row-major rows of 16-bit numbers to their places in a packed matrix. Never
// overlaps the copy ahead of it, whose result it reads.
__global__ void __launch_bounds__(kPackThreads)
    PackKernel(const uint16_t* from, uint16_t* to, int64_t first_row,
               int64_t count, int64_t cols, int64_t padded_k, int mode,
               int64_t first_feature) {
  const int64_t stride = int64_t{gridDim.x} * kPackThreads;
  for (int64_t i = int64_t{blockIdx.x} * kPackThreads + threadIdx.x;
       i < count * cols; i += stride) {
    const int64_t feature =
        PackedFeature(mode, first_feature, first_row + i / cols);
    to[PackedWeight(feature, i % cols, padded_k)] = from[i];
  }
}

}  // namespace

DeviceStatus WeightStore::Create(const EngineShape& shape,
                                 cudaStream_t stream) {
  shape_ = shape;
  layers_.assign(shape.model.layers, LayerPointers());
  targets_.assign(int64_t{kTensors} * shape.model.layers, Target());
  int64_t bytes = 0;
  Place(nullptr, &bytes);
  FORETOKEN_DEVICE_RETURN_IF_ERROR(
      memory_.Allocate(bytes, "memory for the weights", stream));
  Place(memory_.as<char>(), &bytes);
  const int64_t longest =
      2 * std::max({shape.model.d_model, shape.model.d_ff,
                    shape.model.heads * shape.model.head_dim});
  return staging_.Allocate(std::max(kStagingBytes, longest),
                           "memory for uploads", stream);
}

// Query, key and value share a matrix, and gate and up: each has its features
// of it.
void WeightStore::Place(char* base, int64_t* bytes) {
  using enum DeviceTensor;
  const DeviceShape& m = shape_.model;
  const int64_t attention = int64_t{m.heads} * m.head_dim;
  const int64_t kv = int64_t{m.kv_heads} * m.head_dim;
  int64_t end = 0;
  const auto place = [&](int64_t size) {
    char* at = base == nullptr ? nullptr : base + end;
    end += RoundUp(size, kAlignment);
    return static_cast<void*>(at);
  };
  const auto packed = [&](const MatrixShape& shape) {
    return place(shape.elements() * 2);
  };
  const auto floats = [&](int64_t n) {
    return static_cast<float*>(place(n * 4));
  };
  const auto vector = [&](DeviceTensor tensor, int32_t layer, int64_t padded,
                          int64_t size, bool present = true) -> float* {
    if (!present) return nullptr;
    float* const data = floats(padded);
    TargetOf(tensor, layer) = {data, 1, size, true};
    return data;
  };
  embedding_ = place(int64_t{m.vocab} * m.d_model * 2);
  TargetOf(kEmbedding, 0) = {embedding_, m.vocab, m.d_model};
  for (int32_t i = 0; i < m.layers; ++i) {
    LayerPointers& l = layers_[i];
    const auto matrix = [&](DeviceTensor tensor, void* data,
                            const MatrixShape& shape, int64_t rows,
                            int64_t cols, int64_t first_feature = 0,
                            int32_t mode = 0) {
      TargetOf(tensor, i) = {data,   rows,          cols, false,
                             &shape, first_feature, mode};
    };
    l.qkv = packed(shape_.qkv);
    matrix(kQuery, l.qkv, shape_.qkv, attention, m.d_model);
    matrix(kKey, l.qkv, shape_.qkv, kv, m.d_model, attention);
    matrix(kValue, l.qkv, shape_.qkv, kv, m.d_model, attention + kv);
    l.attention_output = packed(shape_.attention_output);
    matrix(kAttentionOutput, l.attention_output, shape_.attention_output,
           m.d_model, attention);
    l.gate_up = packed(shape_.gate_up);
    matrix(kGate, l.gate_up, shape_.gate_up, m.d_ff, m.d_model, 0, 1);
    matrix(kUp, l.gate_up, shape_.gate_up, m.d_ff, m.d_model, 0, 2);
    l.down = packed(shape_.down);
    matrix(kDown, l.down, shape_.down, m.d_model, m.d_ff);
    l.attention_norm = vector(kAttentionNorm, i, shape_.width, m.d_model);
    l.ffn_norm = vector(kFeedForwardNorm, i, shape_.width, m.d_model);
    l.qkv_bias =
        vector(kQueryBias, i, shape_.qkv.features, attention, m.qkv_bias);
    if (l.qkv_bias != nullptr) {
      TargetOf(kKeyBias, i) = {l.qkv_bias + attention, 1, kv, true};
      TargetOf(kValueBias, i) = {l.qkv_bias + attention + kv, 1, kv, true};
    }
    l.output_bias =
        vector(kAttentionOutputBias, i, shape_.width, m.d_model, m.output_bias);
    const int64_t half = shape_.gate_up.features / 2;
    l.gate_bias = vector(kGateBias, i, half, m.d_ff, m.mlp_bias);
    l.up_bias = vector(kUpBias, i, half, m.d_ff, m.mlp_bias);
    l.down_bias = vector(kDownBias, i, shape_.width, m.d_model, m.mlp_bias);
    l.query_norm = vector(kQueryNorm, i, m.head_dim, m.head_dim, m.qk_norm);
    l.key_norm = vector(kKeyNorm, i, m.head_dim, m.head_dim, m.qk_norm);
  }
  head_ = packed(shape_.head);
  TargetOf(kOutput, 0) = {head_, m.vocab, m.d_model, false, &shape_.head};
  final_norm_ = vector(kFinalNorm, 0, shape_.width, m.d_model);
  const int64_t angles = int64_t{m.max_positions} * (m.head_dim / 2);
  cosines_ = floats(angles);
  sines_ = floats(angles);
  *bytes = end;
}

DeviceStatus WeightStore::Upload(DeviceTensor tensor, int32_t layer,
                                 const void* data, int64_t rows, int64_t cols,
                                 cudaStream_t stream) {
  const int kind = static_cast<int>(tensor);
  if (kind < 0 || kind >= kTensors || layer < 0 ||
      layer >= shape_.model.layers || data == nullptr || rows < 1 || cols < 1) {
    return MakeStatus(kInternal, "upload: no tensor %d of layer %d", kind,
                      layer);
  }
  if (tensor == DeviceTensor::kOutput && shape_.model.tied_embeddings) {
    return MakeStatus(kInternal, "upload: the output matrix is the embedding");
  }
  Target& target = TargetOf(tensor, layer);
  const bool same = target.vector
                        ? rows * cols == target.cols && (rows == 1 || cols == 1)
                        : rows == target.rows && cols == target.cols;
  if (!same) {
    return MakeStatus(kInternal,
                      "upload: tensor %d of layer %d is %lld x %lld, want "
                      "%lld x %lld",
                      kind, layer, static_cast<long long>(rows),
                      static_cast<long long>(cols),
                      static_cast<long long>(target.rows),
                      static_cast<long long>(target.cols));
  }
  if (target.packed != nullptr) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(UploadMatrix(target, data, stream));
  } else {
    FORETOKEN_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(target.data, data,
                        target.rows * target.cols * (target.vector ? 4 : 2),
                        cudaMemcpyHostToDevice, stream),
        "copy of a tensor");
  }
  if (tensor == DeviceTensor::kEmbedding && shape_.model.tied_embeddings) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(Pack(TargetOf(DeviceTensor::kOutput, 0),
                                          embedding_, 0, target.rows, stream));
  }
  FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream), "upload");
  target.arrived = true;
  return DeviceStatus();
}

DeviceStatus WeightStore::UploadMatrix(const Target& target, const void* data,
                                       cudaStream_t stream) {
  const int64_t row_bytes = target.cols * 2;
  const int64_t at_once = std::max<int64_t>(1, staging_.bytes() / row_bytes);
  for (int64_t row = 0; row < target.rows; row += at_once) {
    const int64_t count = std::min(at_once, target.rows - row);
    FORETOKEN_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(staging_.as<char>(),
                        static_cast<const char*>(data) + row * row_bytes,
                        count * row_bytes, cudaMemcpyHostToDevice, stream),
        "copy of a matrix");
    FORETOKEN_DEVICE_RETURN_IF_ERROR(
        Pack(target, staging_.as<char>(), row, count, stream));
  }
  return DeviceStatus();
}

DeviceStatus WeightStore::Pack(const Target& target, const void* rows,
                               int64_t first_row, int64_t count,
                               cudaStream_t stream) const {
  const int64_t blocks = std::min<int64_t>(
      RoundUp(count * target.cols, kPackThreads) / kPackThreads, 1 << 14);
  Launcher launcher;
  launcher.stream = stream;
  return CheckCuda(
      launcher.Run(PackKernel, dim3(static_cast<unsigned>(blocks)),
                   dim3(kPackThreads), 0, static_cast<const uint16_t*>(rows),
                   static_cast<uint16_t*>(target.data), first_row, count,
                   target.cols, target.packed->k, target.mode,
                   target.first_feature),
      "packing of a matrix");
}

DeviceStatus WeightStore::Finish(const float* cosines, const float* sines,
                                 cudaStream_t stream) {
  const DeviceShape& m = shape_.model;
  for (int t = 0; t < kTensors; ++t) {
    const auto tensor = static_cast<DeviceTensor>(t);
    if (tensor == DeviceTensor::kOutput && m.tied_embeddings) continue;
    for (int32_t l = 0; l < m.layers; ++l) {
      const Target& target = TargetOf(tensor, l);
      if (target.data != nullptr && !target.arrived) {
        return MakeStatus(kInternal,
                          "weights: tensor %d of layer %d is missing", t, l);
      }
    }
  }
  const int64_t bytes = int64_t{m.max_positions} * (m.head_dim / 2) * 4;
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(cosines_, cosines, bytes, cudaMemcpyHostToDevice, stream),
      "copy of the rotary table");
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(sines_, sines, bytes, cudaMemcpyHostToDevice, stream),
      "copy of the rotary table");
  FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream),
                                 "end of the weights");
  staging_ = DeviceMemory();
  return DeviceStatus();
}

}  // namespace foretoken::device
