#include "common/infer/cpu/cpu_model.h"

#include <cstring>

#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/infer/weight_types.h"

namespace foretoken {
namespace {

void CopyRow(const WeightTensor& tensor, int64_t row, float* out) {
  tensor.CopyTo(row * tensor.cols, absl::MakeSpan(out, tensor.cols));
}

std::vector<float> Vector(const WeightTensor& tensor, int64_t padded) {
  std::vector<float> out(padded, 0.0f);
  tensor.CopyTo(0, absl::MakeSpan(out.data(), tensor.rows * tensor.cols));
  return out;
}

}  // namespace

absl::StatusOr<CpuModel> CpuModel::Build(const ModelWeights& weights,
                                         Precision precision,
                                         ThreadPool& pool) {
  CpuModel model;
  model.config_ = weights.config();
  model.precision_ = precision;
  const ModelConfig& config = model.config_;
  model.d_model_padded_ = static_cast<int32_t>(PadTo(config.d_model, kCpuPad));
  model.head_dim_padded_ =
      static_cast<int32_t>(PadTo(config.head_dim, kCpuPad));
  model.d_ff_padded_ = static_cast<int32_t>(PadTo(config.d_ff, kGemmColumns));

  model.layers_.resize(config.n_layers);
  for (int32_t i = 0; i < config.n_layers; ++i) {
    FORETOKEN_RETURN_IF_ERROR(
        model.BuildLayer(weights.layers()[i], pool, model.layers_[i]));
  }
  model.final_norm_ = Vector(weights.final_norm(), model.d_model_padded_);
  FORETOKEN_ASSIGN_OR_RETURN(model.head_,
                             model.PackPlain(weights.output(), pool));

  const int64_t d_model = config.d_model;
  FORETOKEN_ASSIGN_OR_RETURN(model.embedding_,
                             HugeBuffer::Allocate(config.vocab_size * d_model *
                                                  model.element_bytes()));
  pool.ParallelFor(config.vocab_size, [&](int64_t token) {
    if (precision == Precision::kFloat32) {
      CopyRow(weights.embedding(), token,
              model.embedding_.as<float>() + token * d_model);
      return;
    }
    std::vector<float> row(d_model);
    CopyRow(weights.embedding(), token, row.data());
    uint16_t* out = model.embedding_.as<uint16_t>() + token * d_model;
    for (int64_t i = 0; i < d_model; ++i) out[i] = BFloat16FromFloat(row[i]);
  });
  model.weights_digest_ = HexDigest(weights.digest());
  return model;
}

void CpuModel::CopyEmbedding(TokenId token, float* out) const {
  const int64_t d_model = config_.d_model;
  if (precision_ == Precision::kFloat32) {
    std::memcpy(out, embedding_.as<float>() + token * d_model,
                d_model * sizeof(float));
  } else {
    const uint16_t* row = embedding_.as<uint16_t>() + token * d_model;
    for (int64_t i = 0; i < d_model; ++i) out[i] = FloatFromBFloat16(row[i]);
  }
  for (int64_t i = d_model; i < d_model_padded_; ++i) out[i] = 0.0f;
}

int64_t CpuModel::bytes_per_pass() const {
  int64_t bytes = head_.bytes() + config_.d_model * element_bytes();
  for (const CpuLayer& layer : layers_) {
    bytes += layer.qkv.bytes() + layer.output.bytes() + layer.gate_up.bytes() +
             layer.down.bytes();
  }
  return bytes;
}

absl::Status CpuModel::BuildLayer(const LayerWeights& source, ThreadPool& pool,
                                  CpuLayer& layer) const {
  layer.attention_norm = Vector(source.attention_norm, d_model_padded_);
  layer.ffn_norm = Vector(source.ffn_norm, d_model_padded_);
  if (source.q_norm.present()) {
    layer.q_norm = Vector(source.q_norm, head_dim_padded_);
    layer.k_norm = Vector(source.k_norm, head_dim_padded_);
  }
  FORETOKEN_ASSIGN_OR_RETURN(layer.qkv, PackQkv(source, pool));
  FORETOKEN_ASSIGN_OR_RETURN(layer.output, PackOutput(source.o, pool));
  FORETOKEN_ASSIGN_OR_RETURN(layer.gate_up, PackGateUp(source, pool));
  FORETOKEN_ASSIGN_OR_RETURN(layer.down, PackPlain(source.down, pool));

  if (source.q_bias.present()) {
    layer.qkv_bias.assign(layer.qkv.blocks() * kGemmColumns, 0.0f);
    float* out = layer.qkv_bias.data();
    for (const WeightTensor* bias :
         {&source.q_bias, &source.k_bias, &source.v_bias}) {
      const std::vector<float> values = Vector(*bias, bias->rows * bias->cols);
      for (size_t i = 0; i < values.size(); i += config_.head_dim) {
        std::memcpy(out, &values[i], config_.head_dim * sizeof(float));
        out += head_dim_padded_;
      }
    }
  }
  if (source.o_bias.present()) {
    layer.output_bias =
        Vector(source.o_bias, layer.output.blocks() * kGemmColumns);
  }
  if (source.gate_bias.present()) {
    const std::vector<float> gate = Vector(source.gate_bias, d_ff_padded_);
    const std::vector<float> up = Vector(source.up_bias, d_ff_padded_);
    for (int32_t i = 0; i < d_ff_padded_; i += kGemmColumns) {
      layer.gate_up_bias.insert(layer.gate_up_bias.end(), gate.begin() + i,
                                gate.begin() + i + kGemmColumns);
      layer.gate_up_bias.insert(layer.gate_up_bias.end(), up.begin() + i,
                                up.begin() + i + kGemmColumns);
    }
  }
  if (source.down_bias.present()) {
    layer.down_bias =
        Vector(source.down_bias, layer.down.blocks() * kGemmColumns);
  }
  return absl::OkStatus();
}

absl::StatusOr<PackedMatrix> CpuModel::PackPlain(const WeightTensor& tensor,
                                                 ThreadPool& pool) const {
  return PackedMatrix::Pack(
      precision_, tensor.rows, tensor.cols, pool,
      [&](int64_t column, float* out) { CopyRow(tensor, column, out); });
}

absl::StatusOr<PackedMatrix> CpuModel::PackQkv(const LayerWeights& source,
                                               ThreadPool& pool) const {
  const int64_t heads = config_.n_heads + 2 * int64_t{config_.n_kv_heads};
  return PackedMatrix::Pack(
      precision_, heads * head_dim_padded_, config_.d_model, pool,
      [&](int64_t column, float* out) {
        int64_t head = column / head_dim_padded_;
        const int64_t d = column % head_dim_padded_;
        if (d >= config_.head_dim) return;
        const WeightTensor* tensor = &source.q;
        if (head >= config_.n_heads) {
          head -= config_.n_heads;
          tensor = &source.k;
          if (head >= config_.n_kv_heads) {
            head -= config_.n_kv_heads;
            tensor = &source.v;
          }
        }
        CopyRow(*tensor, head * config_.head_dim + d, out);
      });
}

absl::StatusOr<PackedMatrix> CpuModel::PackOutput(const WeightTensor& tensor,
                                                  ThreadPool& pool) const {
  return PackedMatrix::Pack(
      precision_, config_.d_model, int64_t{config_.n_heads} * head_dim_padded_,
      pool, [&](int64_t column, float* out) {
        for (int32_t head = 0; head < config_.n_heads; ++head) {
          tensor.CopyTo(column * tensor.cols + int64_t{head} * config_.head_dim,
                        absl::MakeSpan(out + int64_t{head} * head_dim_padded_,
                                       config_.head_dim));
        }
      });
}

absl::StatusOr<PackedMatrix> CpuModel::PackGateUp(const LayerWeights& source,
                                                  ThreadPool& pool) const {
  return PackedMatrix::Pack(
      precision_, 2 * int64_t{d_ff_padded_}, config_.d_model, pool,
      [&](int64_t column, float* out) {
        const int64_t block = column / kGemmColumns;
        const int64_t row = block / 2 * kGemmColumns + column % kGemmColumns;
        if (row >= config_.d_ff) return;
        CopyRow(block % 2 == 0 ? source.gate : source.up, row, out);
      });
}

}  // namespace foretoken
