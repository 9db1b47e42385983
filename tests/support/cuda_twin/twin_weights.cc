#include "tests/support/cuda_twin/twin_weights.h"

#include <cstring>

#include "common/infer/cuda/kernels/device_status.h"
#include "common/infer/cuda/kernels/gemm_index.h"
#include "tests/support/cuda_twin/twin_math.h"

namespace foretoken::twin {
namespace {

using device::MakeStatus;

// Where a row of a tensor lies among the features of the matrix that the device
// makes of it.
int64_t FeatureOf(DeviceTensor tensor, int64_t row) {
  if (tensor == DeviceTensor::kGate) return device::GateFeature(row);
  if (tensor == DeviceTensor::kUp) return device::UpFeature(row);
  return row;
}

// [rows][cols] as [cols][rows], by way of the device's packed layout.
std::vector<float> PackAndRead(DeviceTensor tensor, const float* values,
                               int64_t rows, int64_t cols) {
  const int64_t padded_k = device::PaddedK(cols);
  std::vector<float> packed(
      device::PaddedFeatures(FeatureOf(tensor, rows - 1) + 1) * padded_k);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < cols; ++k) {
      packed[device::PackedWeight(FeatureOf(tensor, r), k, padded_k)] =
          values[r * cols + k];
    }
  }
  std::vector<float> out(rows * cols);
  for (int64_t k = 0; k < cols; ++k) {
    for (int64_t r = 0; r < rows; ++r) {
      out[k * rows + r] =
          packed[device::PackedWeight(FeatureOf(tensor, r), k, padded_k)];
    }
  }
  return out;
}

bool IsOfALayer(DeviceTensor tensor) {
  return tensor != DeviceTensor::kEmbedding &&
         tensor != DeviceTensor::kOutput && tensor != DeviceTensor::kFinalNorm;
}

}  // namespace

TensorSize SizeOf(const DeviceShape& s, DeviceTensor tensor) {
  using enum DeviceTensor;
  const int64_t q = int64_t{s.heads} * s.head_dim;
  const int64_t kv = int64_t{s.kv_heads} * s.head_dim;
  const auto matrix = [](int64_t rows, int64_t cols) {
    return TensorSize{rows, cols, true};
  };
  const auto vector = [](int64_t size, bool present = true) {
    return TensorSize{present ? 1 : 0, size, false};
  };
  switch (tensor) {
    case kEmbedding:
      return matrix(s.vocab, s.d_model);
    case kOutput:
      return matrix(s.tied_embeddings ? 0 : s.vocab, s.d_model);
    case kQuery:
      return matrix(q, s.d_model);
    case kKey:
    case kValue:
      return matrix(kv, s.d_model);
    case kAttentionOutput:
      return matrix(s.d_model, q);
    case kGate:
    case kUp:
      return matrix(s.d_ff, s.d_model);
    case kDown:
      return matrix(s.d_model, s.d_ff);
    case kFinalNorm:
    case kAttentionNorm:
    case kFeedForwardNorm:
      return vector(s.d_model);
    case kQueryBias:
      return vector(q, s.qkv_bias);
    case kKeyBias:
    case kValueBias:
      return vector(kv, s.qkv_bias);
    case kQueryNorm:
    case kKeyNorm:
      return vector(s.head_dim, s.qk_norm);
    case kAttentionOutputBias:
      return vector(s.d_model, s.output_bias);
    case kGateBias:
    case kUpBias:
      return vector(s.d_ff, s.mlp_bias);
    case kDownBias:
      return vector(s.d_model, s.mlp_bias);
  }
  return {};
}

DeviceStatus TwinWeights::Add(DeviceTensor tensor, int32_t layer,
                              const void* data, int64_t rows, int64_t cols) {
  const TensorSize want = SizeOf(shape_, tensor);
  if (want.rows == 0 || rows != want.rows || cols != want.cols || layer < 0 ||
      layer >= (IsOfALayer(tensor) ? shape_.layers : 1)) {
    return MakeStatus(
        device::kInternal,
        "tensor %d of layer %d: %lld x %lld, want %lld x %lld",
        static_cast<int>(tensor), layer, static_cast<long long>(rows),
        static_cast<long long>(cols), static_cast<long long>(want.rows),
        static_cast<long long>(want.cols));
  }
  const auto [it, added] = rows_.try_emplace({tensor, layer});
  if (!added) {
    return MakeStatus(device::kInternal, "tensor %d of layer %d: twice",
                      static_cast<int>(tensor), layer);
  }
  it->second.resize(rows * cols);
  if (!want.matrix) {
    std::memcpy(it->second.data(), data, rows * cols * sizeof(float));
    return {};
  }
  Widen(type_, data, rows * cols, it->second.data());
  if (tensor != DeviceTensor::kEmbedding || shape_.tied_embeddings) {
    matrices_[{tensor, layer}] =
        PackAndRead(tensor, it->second.data(), rows, cols);
  }
  if (tensor != DeviceTensor::kEmbedding) it->second.clear();
  return {};
}

DeviceStatus TwinWeights::CheckComplete() const {
  for (int t = 0; t <= static_cast<int>(DeviceTensor::kDownBias); ++t) {
    const DeviceTensor tensor = static_cast<DeviceTensor>(t);
    if (SizeOf(shape_, tensor).rows == 0) continue;
    for (int32_t i = 0; i < (IsOfALayer(tensor) ? shape_.layers : 1); ++i) {
      if (rows_.count({tensor, i}) > 0) continue;
      return MakeStatus(device::kInternal, "tensor %d of layer %d is missing",
                        t, i);
    }
  }
  return {};
}

const std::vector<float>& TwinWeights::Rows(DeviceTensor tensor,
                                            int32_t layer) const {
  const auto found = rows_.find({tensor, layer});
  return found == rows_.end() ? none_ : found->second;
}

}  // namespace foretoken::twin
