#include "common/infer/cuda/device_weights.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/infer/cuda/kernels/attention_index.h"
#include "common/infer/cuda/status_from_device.h"
#include "common/infer/numerics.h"
#include "common/infer/rotary.h"
#include "common/infer/weight_types.h"

namespace foretoken {
namespace {

WeightType StoredType(DeviceType type) {
  return type == DeviceType::kFloat16 ? WeightType::kFloat16
                                      : WeightType::kBFloat16;
}

struct LayerTensor {
  DeviceTensor tensor;
  WeightTensor LayerWeights::*from;
  bool matrix;
  const char* name;
};
using enum DeviceTensor;
constexpr LayerTensor kLayerTensors[] = {
    {kAttentionNorm, &LayerWeights::attention_norm, false, "attention norm"},
    {kQuery, &LayerWeights::q, true, "query matrix"},
    {kKey, &LayerWeights::k, true, "key matrix"},
    {kValue, &LayerWeights::v, true, "value matrix"},
    {kQueryBias, &LayerWeights::q_bias, false, "query bias"},
    {kKeyBias, &LayerWeights::k_bias, false, "key bias"},
    {kValueBias, &LayerWeights::v_bias, false, "value bias"},
    {kQueryNorm, &LayerWeights::q_norm, false, "query norm"},
    {kKeyNorm, &LayerWeights::k_norm, false, "key norm"},
    {kAttentionOutput, &LayerWeights::o, true, "attention output"},
    {kAttentionOutputBias, &LayerWeights::o_bias, false,
     "attention output bias"},
    {kFeedForwardNorm, &LayerWeights::ffn_norm, false, "feed-forward norm"},
    {kGate, &LayerWeights::gate, true, "gate matrix"},
    {kUp, &LayerWeights::up, true, "up matrix"},
    {kGateBias, &LayerWeights::gate_bias, false, "gate bias"},
    {kUpBias, &LayerWeights::up_bias, false, "up bias"},
    {kDown, &LayerWeights::down, true, "down matrix"},
    {kDownBias, &LayerWeights::down_bias, false, "down bias"},
};

class Uploader {
 public:
  Uploader(DeviceType type, DeviceEngine& engine)
      : type_(type), engine_(engine) {}

  // Skips absent tensors: the shape says which exist.
  absl::Status Matrix(DeviceTensor tensor, const char* name, int32_t layer,
                      const WeightTensor& from) {
    if (!from.present()) return absl::OkStatus();
    // A GGUF file aligns its tensors, a safetensors file need not; the device
    // reads 16-bit elements, so an odd address is copied.
    const bool aligned = reinterpret_cast<uintptr_t>(from.data) % 2 == 0;
    if (from.type == StoredType(type_) && aligned && from.paired_rows == 0) {
      return Send(tensor, name, layer, from.data, from);
    }
    // In chunks, so that the fp32 copy of a matrix (twice its size) never
    // exists as a whole.
    narrow_.resize(from.size());
    for (int64_t begin = 0; begin < from.size(); begin += kChunk) {
      const int64_t count = std::min(kChunk, from.size() - begin);
      wide_.resize(count);
      from.CopyTo(begin, absl::MakeSpan(wide_));
      for (int64_t i = 0; i < count; ++i) {
        narrow_[begin + i] = type_ == DeviceType::kFloat16
                                 ? Float16FromFloat(wide_[i])
                                 : BFloat16FromFloat(wide_[i]);
      }
    }
    return Send(tensor, name, layer, narrow_.data(), from);
  }

  absl::Status Vector(DeviceTensor tensor, const char* name, int32_t layer,
                      const WeightTensor& from) {
    if (!from.present()) return absl::OkStatus();
    wide_.resize(from.size());
    from.CopyTo(0, absl::MakeSpan(wide_));
    return Send(tensor, name, layer, wide_.data(), from);
  }

 private:
  // Elements: 4 MiB of fp32.
  static constexpr int64_t kChunk = int64_t{1} << 20;

  absl::Status Send(DeviceTensor tensor, const char* name, int32_t layer,
                    const void* data, const WeightTensor& from) {
    return StatusFromDevice(
        engine_.Upload(tensor, layer, data, from.rows, from.cols),
        absl::StrCat("upload of layer ", layer, "'s ", name));
  }

  const DeviceType type_;
  DeviceEngine& engine_;
  std::vector<float> wide_;
  std::vector<uint16_t> narrow_;
};

}  // namespace

DeviceShape ShapeForDevice(const ModelConfig& config) {
  DeviceShape shape;
  shape.d_model = config.d_model;
  shape.layers = config.n_layers;
  shape.heads = config.n_heads;
  shape.kv_heads = config.n_kv_heads;
  shape.head_dim = config.head_dim;
  shape.d_ff = config.d_ff;
  shape.vocab = config.vocab_size;
  shape.max_positions = config.max_positions;
  shape.rms_norm_eps = config.rms_norm_eps;
  shape.tied_embeddings = config.tied_embeddings;
  shape.qkv_bias = config.qkv_bias;
  shape.output_bias = config.output_bias;
  shape.mlp_bias = config.mlp_bias;
  shape.qk_norm = config.qk_norm;
  return shape;
}

DeviceType TypeForDevice(const ModelWeights& weights) {
  const auto half = [](const WeightTensor& tensor) {
    return tensor.type == WeightType::kFloat16;
  };
  // fp16 only if all matrices are stored so. A conversion of bf16 to fp16 could
  // overflow, one of fp16 to bf16 only rounds.
  bool all = half(weights.embedding()) && half(weights.output());
  for (const LayerWeights& layer : weights.layers()) {
    for (const LayerTensor& entry : kLayerTensors) {
      all = all && (!entry.matrix || half(layer.*entry.from));
    }
  }
  return all ? DeviceType::kFloat16 : DeviceType::kBFloat16;
}

const char* DeviceTypeName(DeviceType type) {
  return type == DeviceType::kFloat16 ? "fp16" : "bf16";
}

int64_t DevicePageBytes(const ModelConfig& config) {
  // Keys and values, in 16 bits each.
  constexpr int64_t kElementBytes = 2;
  return 2 * kElementBytes * kDevicePageTokens * config.n_layers *
         config.n_kv_heads * device::PaddedHeadDim(config.head_dim);
}

std::string RotaryTable::Digest() const {
  // The bits, not the printed numbers: tables that differ in one rounding must
  // not look equal.
  std::string bits;
  for (const std::vector<float>* part : {&cosines, &sines}) {
    bits.append(reinterpret_cast<const char*>(part->data()),
                part->size() * sizeof(float));
  }
  return ShortDigest(bits);
}

RotaryTable MakeRotaryTable(const ModelConfig& config) {
  const Rotary rotary(config);
  const int64_t half = rotary.half();
  RotaryTable table;
  table.cosines.resize(config.max_positions * half);
  table.sines.resize(table.cosines.size());
  for (int64_t position = 0; position < config.max_positions; ++position) {
    // Computed on the host, once, for all engines: the device's own sine and
    // cosine would round differently.
    rotary.Angles(position, &table.cosines[position * half],
                  &table.sines[position * half]);
  }
  return table;
}

absl::Status UploadWeights(const ModelWeights& weights, DeviceType type,
                           const RotaryTable& rotary, DeviceEngine& engine) {
  Uploader up(type, engine);
  const ModelConfig& config = weights.config();
  FORETOKEN_RETURN_IF_ERROR(
      up.Matrix(kEmbedding, "embedding", 0, weights.embedding()));
  if (!config.tied_embeddings) {
    FORETOKEN_RETURN_IF_ERROR(
        up.Matrix(kOutput, "output matrix", 0, weights.output()));
  }
  FORETOKEN_RETURN_IF_ERROR(
      up.Vector(kFinalNorm, "final norm", 0, weights.final_norm()));
  for (int32_t i = 0; i < config.n_layers; ++i) {
    for (const LayerTensor& entry : kLayerTensors) {
      const WeightTensor& from = weights.layers()[i].*entry.from;
      FORETOKEN_RETURN_IF_ERROR(
          entry.matrix ? up.Matrix(entry.tensor, entry.name, i, from)
                       : up.Vector(entry.tensor, entry.name, i, from));
    }
  }
  return StatusFromDevice(
      engine.FinishWeights(rotary.cosines.data(), rotary.sines.data()),
      "end of the weights");
}

}  // namespace foretoken
