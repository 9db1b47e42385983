#include <algorithm>

#include "common/infer/cuda/kernels/gemm_index.h"
#include "common/infer/cuda/kernels/launch.h"
#include "common/infer/cuda/kernels/weight_store.h"

namespace foretoken {
namespace device {
namespace {

constexpr int64_t kStagingBytes = int64_t{64} << 20;
constexpr int kPackThreads = 256;
constexpr int kTensors = static_cast<int>(DeviceTensor::kDownBias) + 1;
constexpr int64_t kAlignment = 256;

// Row-major rows of 16-bit numbers to their places in a packed matrix. (Never
// launched before what is ahead of it is done.)
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
  arrived_.assign(int64_t{kTensors} * shape.model.layers, false);
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

void WeightStore::Place(char* base, int64_t* bytes) {
  int64_t end = 0;
  const auto place = [&](int64_t size) {
    char* at = base == nullptr ? nullptr : base + end;
    end += RoundUp(size, kAlignment);
    return static_cast<void*>(at);
  };
  const auto matrix = [&](const MatrixShape& m) {
    return place(m.elements() * 2);
  };
  const auto floats = [&](int64_t n, bool present = true) {
    return present ? static_cast<float*>(place(n * 4)) : nullptr;
  };
  const DeviceShape& m = shape_.model;
  embedding_ = place(int64_t{m.vocab} * m.d_model * 2);
  for (LayerPointers& l : layers_) {
    l.qkv = matrix(shape_.qkv);
    l.attention_output = matrix(shape_.attention_output);
    l.gate_up = matrix(shape_.gate_up);
    l.down = matrix(shape_.down);
    l.attention_norm = floats(shape_.width);
    l.ffn_norm = floats(shape_.width);
    l.qkv_bias = floats(shape_.qkv.features, m.qkv_bias);
    l.output_bias = floats(shape_.width, m.output_bias);
    l.gate_bias = floats(shape_.gate_up.features / 2, m.mlp_bias);
    l.up_bias = floats(shape_.gate_up.features / 2, m.mlp_bias);
    l.down_bias = floats(shape_.width, m.mlp_bias);
    l.query_norm = floats(m.head_dim, m.qk_norm);
    l.key_norm = floats(m.head_dim, m.qk_norm);
  }
  head_ = matrix(shape_.head);
  final_norm_ = floats(shape_.width);
  const int64_t angles = int64_t{m.max_positions} * (m.head_dim / 2);
  cosines_ = floats(angles);
  sines_ = floats(angles);
  *bytes = end;
}

WeightStore::Target WeightStore::FindMatrix(DeviceTensor tensor,
                                            LayerPointers& l) const {
  const DeviceShape& m = shape_.model;
  const int64_t attention = int64_t{m.heads} * m.head_dim;
  const int64_t kv = int64_t{m.kv_heads} * m.head_dim;
  switch (tensor) {
    case DeviceTensor::kOutput:
      return {head_, &shape_.head, 0, 0, nullptr, m.vocab, m.d_model};
    case DeviceTensor::kQuery:
      return {l.qkv, &shape_.qkv, 0, 0, nullptr, attention, m.d_model};
    case DeviceTensor::kKey:
      return {l.qkv, &shape_.qkv, 0, attention, nullptr, kv, m.d_model};
    case DeviceTensor::kValue:
      return {l.qkv, &shape_.qkv, 0, attention + kv, nullptr, kv, m.d_model};
    case DeviceTensor::kAttentionOutput:
      return {l.attention_output,
              &shape_.attention_output,
              0,
              0,
              nullptr,
              m.d_model,
              attention};
    case DeviceTensor::kGate:
      return {l.gate_up, &shape_.gate_up, 1, 0, nullptr, m.d_ff, m.d_model};
    case DeviceTensor::kUp:
      return {l.gate_up, &shape_.gate_up, 2, 0, nullptr, m.d_ff, m.d_model};
    case DeviceTensor::kDown:
      return {l.down, &shape_.down, 0, 0, nullptr, m.d_model, m.d_ff};
    default:
      return {};
  }
}

WeightStore::Target WeightStore::Find(DeviceTensor tensor,
                                      LayerPointers& l) const {
  const DeviceShape& m = shape_.model;
  const int64_t attention = int64_t{m.heads} * m.head_dim;
  const int64_t kv = int64_t{m.kv_heads} * m.head_dim;
  const auto vector = [](float* at, int64_t size) {
    Target target;
    target.vector = at;
    target.rows = 1;
    target.cols = size;
    return target;
  };
  const auto part = [&](int64_t first, int64_t size) {
    return vector(l.qkv_bias == nullptr ? nullptr : l.qkv_bias + first, size);
  };
  switch (tensor) {
    case DeviceTensor::kFinalNorm:
      return vector(final_norm_, m.d_model);
    case DeviceTensor::kAttentionNorm:
      return vector(l.attention_norm, m.d_model);
    case DeviceTensor::kFeedForwardNorm:
      return vector(l.ffn_norm, m.d_model);
    case DeviceTensor::kQueryBias:
      return part(0, attention);
    case DeviceTensor::kKeyBias:
      return part(attention, kv);
    case DeviceTensor::kValueBias:
      return part(attention + kv, kv);
    case DeviceTensor::kQueryNorm:
      return vector(l.query_norm, m.head_dim);
    case DeviceTensor::kKeyNorm:
      return vector(l.key_norm, m.head_dim);
    case DeviceTensor::kAttentionOutputBias:
      return vector(l.output_bias, m.d_model);
    case DeviceTensor::kGateBias:
      return vector(l.gate_bias, m.d_ff);
    case DeviceTensor::kUpBias:
      return vector(l.up_bias, m.d_ff);
    case DeviceTensor::kDownBias:
      return vector(l.down_bias, m.d_model);
    default:
      return FindMatrix(tensor, l);
  }
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
  const bool embedding = tensor == DeviceTensor::kEmbedding;
  if (tensor == DeviceTensor::kOutput && shape_.model.tied_embeddings) {
    return MakeStatus(kInternal, "upload: the output matrix is the embedding");
  }
  Target target = Find(tensor, layers_[layer]);
  if (embedding) {
    target.rows = shape_.model.vocab;
    target.cols = shape_.model.d_model;
  }
  const bool same = target.vector != nullptr
                        ? rows * cols == target.cols && (rows == 1 || cols == 1)
                        : rows == target.rows && cols == target.cols;
  if (!same ||
      (!embedding && target.vector == nullptr && target.packed == nullptr)) {
    return MakeStatus(kInternal,
                      "upload: tensor %d of layer %d is %lld x %lld, want "
                      "%lld x %lld",
                      kind, layer, static_cast<long long>(rows),
                      static_cast<long long>(cols),
                      static_cast<long long>(target.rows),
                      static_cast<long long>(target.cols));
  }
  if (embedding) {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(UploadEmbedding(data, stream));
  } else if (target.vector != nullptr) {
    FORETOKEN_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(target.vector, data, target.cols * 4,
                        cudaMemcpyHostToDevice, stream),
        "copy of a vector");
  } else {
    FORETOKEN_DEVICE_RETURN_IF_ERROR(UploadMatrix(target, data, stream));
  }
  FORETOKEN_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream), "upload");
  arrived_[int64_t{kind} * shape_.model.layers + layer] = true;
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

DeviceStatus WeightStore::UploadEmbedding(const void* data,
                                          cudaStream_t stream) {
  const DeviceShape& m = shape_.model;
  FORETOKEN_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(embedding_, data, int64_t{m.vocab} * m.d_model * 2,
                      cudaMemcpyHostToDevice, stream),
      "copy of the embedding");
  if (!m.tied_embeddings) return DeviceStatus();
  const Target head = {head_, &shape_.head, 0, 0, nullptr, m.vocab, m.d_model};
  return Pack(head, embedding_, 0, m.vocab, stream);
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
                   static_cast<uint16_t*>(target.packed), first_row, count,
                   target.cols, target.shape->k, target.mode,
                   target.first_feature),
      "packing of a matrix");
}

DeviceStatus WeightStore::Finish(const float* cosines, const float* sines,
                                 cudaStream_t stream) {
  const DeviceShape& m = shape_.model;
  for (int t = 0; t < kTensors; ++t) {
    const auto tensor = static_cast<DeviceTensor>(t);
    const bool by_layer = tensor >= DeviceTensor::kAttentionNorm;
    for (int32_t l = 0; l < (by_layer ? m.layers : 1); ++l) {
      const Target target = Find(tensor, layers_[l]);
      const bool wanted =
          tensor == DeviceTensor::kEmbedding ||
          (tensor == DeviceTensor::kOutput
               ? !m.tied_embeddings
               : target.vector != nullptr || target.packed != nullptr);
      if (wanted && !arrived_[int64_t{t} * m.layers + l]) {
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

}  // namespace device
}  // namespace foretoken
