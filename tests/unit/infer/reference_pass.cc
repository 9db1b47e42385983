#include "tests/unit/infer/reference_pass.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/infer/weight_types.h"

namespace foretoken::testing {
namespace {

using Vector = std::vector<double>;

Vector Decode(const WeightTensor& tensor) {
  if (!tensor.present()) return {};
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  ConvertToFloat32(tensor.type, tensor.data, absl::MakeSpan(values));
  return Vector(values.begin(), values.end());
}

double RoundToBFloat16(double value) {
  return FloatFromBFloat16(BFloat16FromFloat(static_cast<float>(value)));
}

bool IsQuantised(const WeightTensor& tensor) {
  return WeightTypeFormat(tensor.type).block > 1;
}

ReferenceMatrix Matrix(const WeightTensor& tensor, const WeightTensor& bias) {
  ReferenceMatrix matrix;
  matrix.rows = tensor.rows;
  matrix.cols = tensor.cols;
  if (IsQuantised(tensor)) {
    matrix.scaled_together = WeightTypeFormat(tensor.type).block;
  }
  matrix.values = Decode(tensor);
  if (!IsQuantised(tensor)) {
    for (double& value : matrix.values) value = RoundToBFloat16(value);
  }
  matrix.bias = Decode(bias);
  return matrix;
}

// The matrices that one product joins read the same rows.
void ShareScales(std::initializer_list<ReferenceMatrix*> matrices) {
  int64_t most = 0;
  for (const ReferenceMatrix* matrix : matrices) {
    most = std::max(most, matrix->scaled_together);
  }
  for (ReferenceMatrix* matrix : matrices) matrix->scaled_together = most;
}

// Rows (or elements) in pairs become those of two halves, head by head.
void SplitPairs(int64_t head_dim, int64_t width, Vector& values) {
  const Vector stored = values;
  const int64_t rows = static_cast<int64_t>(values.size()) / width;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t d = row % head_dim;
    const int64_t to = row - d + d / 2 + d % 2 * (head_dim / 2);
    for (int64_t i = 0; i < width; ++i) {
      values[to * width + i] = stored[row * width + i];
    }
  }
}

// The pass itself.
class Pass {
 public:
  Pass(const ReferenceModel& model, const WatchedOps& ops)
      : model_(model), config_(model.config), ops_(ops) {}

  absl::StatusOr<Vector> Logits(const std::vector<TokenId>& tokens);

 private:
  absl::StatusOr<Vector> Round(const Vector& x, int64_t scaled_together,
                               const std::string& what) const;
  absl::StatusOr<Vector> Product(const ReferenceMatrix& matrix, const Vector& x,
                                 const std::string& what) const;
  void RmsNorm(const Vector& weight, int64_t begin, Vector& values) const;
  void Rotate(int64_t position, int64_t begin, Vector& values) const;
  Vector Attend(size_t t) const;
  absl::Status Keep(const ReferenceLayer& layer, size_t t,
                    const std::string& name);
  absl::Status FeedForward(const ReferenceLayer& layer, const std::string& name,
                           Vector& hidden) const;
  absl::Status Layer(const ReferenceLayer& layer, const std::string& name);

  const ReferenceModel& model_;
  const ModelConfig& config_;
  const WatchedOps& ops_;
  std::vector<Vector> hidden_, q_, k_, v_;  // by position
};

// To int8 that `scaled_together` elements share a scale of, or to bf16.
absl::StatusOr<Vector> Pass::Round(const Vector& x, int64_t scaled_together,
                                   const std::string& what) const {
  Vector out;
  for (size_t b = 0; b < x.size(); b += WatchedOps::kBlock) {
    const auto block = absl::MakeConstSpan(x).subspan(b, WatchedOps::kBlock);
    const auto rounded =
        scaled_together > 0
            ? ops_.Int8(block, absl::MakeConstSpan(x).subspan(
                                   b - b % scaled_together, scaled_together))
            : ops_.BFloat16(block);
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(rounded.status(), absl::StrCat(what, ", element ", b)));
    out.insert(out.end(), rounded->begin(), rounded->end());
  }
  return out;
}

absl::StatusOr<Vector> Pass::Product(const ReferenceMatrix& matrix,
                                     const Vector& x,
                                     const std::string& what) const {
  FORETOKEN_ASSIGN_OR_RETURN(const Vector rounded,
                             Round(x, matrix.scaled_together, what));
  Vector out(matrix.rows);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    double sum = matrix.bias.empty() ? 0.0 : matrix.bias[r];
    for (int64_t c = 0; c < matrix.cols; ++c) {
      sum += matrix.values[r * matrix.cols + c] * rounded[c];
    }
    out[r] = sum;
  }
  return out;
}

// In place, values[begin, begin + weight.size()).
void Pass::RmsNorm(const Vector& weight, int64_t begin, Vector& values) const {
  double sum = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    sum += std::pow(values[begin + i], 2);
  }
  const double inverse =
      1 / std::sqrt(sum / static_cast<double>(weight.size()) +
                    static_cast<double>(config_.rms_norm_eps));
  for (size_t i = 0; i < weight.size(); ++i) {
    values[begin + i] *= inverse * weight[i];
  }
}

void Pass::Rotate(int64_t position, int64_t begin, Vector& values) const {
  const size_t half = model_.frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * model_.frequencies[i];
    double& a = values[begin + i];
    double& b = values[begin + i + half];
    const double rotated = a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + a * std::sin(angle);
    a = rotated;
  }
}

// Of position t to itself and those before.
Vector Pass::Attend(size_t t) const {
  const int dim = config_.head_dim;
  const int group = config_.n_heads / config_.n_kv_heads;
  Vector out(config_.n_heads * dim);
  for (int head = 0; head < config_.n_heads; ++head) {
    const int kv = head / group * dim;
    Vector weight(t + 1);
    double total = 0;
    for (size_t s = 0; s <= t; ++s) {
      double score = 0;
      for (int d = 0; d < dim; ++d) {
        score += q_[t][head * dim + d] * k_[s][kv + d];
      }
      weight[s] = std::exp(score / std::sqrt(static_cast<double>(dim)));
      total += weight[s];
    }
    for (size_t s = 0; s <= t; ++s) {
      for (int d = 0; d < dim; ++d) {
        out[head * dim + d] += weight[s] / total * v_[s][kv + d];
      }
    }
  }
  return out;
}

// Queries, keys and values of position t.
absl::Status Pass::Keep(const ReferenceLayer& layer, size_t t,
                        const std::string& name) {
  Vector x = hidden_[t];
  RmsNorm(layer.attention_norm, 0, x);
  FORETOKEN_ASSIGN_OR_RETURN(
      q_[t], Product(layer.q, x, absl::StrCat(name, "input of q")));
  FORETOKEN_ASSIGN_OR_RETURN(
      k_[t], Product(layer.k, x, absl::StrCat(name, "input of k")));
  FORETOKEN_ASSIGN_OR_RETURN(
      v_[t], Product(layer.v, x, absl::StrCat(name, "input of v")));
  const auto finish = [&](const Vector& norm, Vector& heads) {
    for (size_t at = 0; at < heads.size(); at += config_.head_dim) {
      if (config_.qk_norm) RmsNorm(norm, static_cast<int64_t>(at), heads);
      Rotate(static_cast<int64_t>(t), static_cast<int64_t>(at), heads);
    }
  };
  finish(layer.q_norm, q_[t]);
  finish(layer.k_norm, k_[t]);
  FORETOKEN_ASSIGN_OR_RETURN(
      k_[t], Round(k_[t], /*scaled_together=*/0, absl::StrCat(name, "keys")));
  FORETOKEN_ASSIGN_OR_RETURN(
      v_[t], Round(v_[t], /*scaled_together=*/0, absl::StrCat(name, "values")));
  return absl::OkStatus();
}

void AddTo(Vector& acc, const Vector& values) {
  for (size_t i = 0; i < acc.size(); ++i) acc[i] += values[i];
}

absl::Status Pass::FeedForward(const ReferenceLayer& layer,
                               const std::string& name, Vector& hidden) const {
  Vector x = hidden;
  RmsNorm(layer.ffn_norm, 0, x);
  FORETOKEN_ASSIGN_OR_RETURN(
      Vector gate, Product(layer.gate, x, absl::StrCat(name, "input of gate")));
  FORETOKEN_ASSIGN_OR_RETURN(
      const Vector up, Product(layer.up, x, absl::StrCat(name, "input of up")));
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const Vector down,
      Product(layer.down, gate, absl::StrCat(name, "input of down")));
  AddTo(hidden, down);
  return absl::OkStatus();
}

absl::Status Pass::Layer(const ReferenceLayer& layer, const std::string& name) {
  for (size_t t = 0; t < hidden_.size(); ++t) {
    FORETOKEN_RETURN_IF_ERROR(Keep(layer, t, name));
  }
  for (size_t t = 0; t < hidden_.size(); ++t) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const Vector output,
        Product(layer.o, Attend(t), absl::StrCat(name, "input of o")));
    AddTo(hidden_[t], output);
    FORETOKEN_RETURN_IF_ERROR(FeedForward(layer, name, hidden_[t]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Vector> Pass::Logits(const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens) {
    const auto row =
        model_.embedding.begin() + int64_t{token} * config_.d_model;
    hidden_.emplace_back(row, row + config_.d_model);
  }
  q_ = k_ = v_ = hidden_;
  for (size_t i = 0; i < model_.layers.size(); ++i) {
    FORETOKEN_RETURN_IF_ERROR(
        Layer(model_.layers[i], absl::StrCat("layer ", i, ", ")));
  }
  Vector logits;
  for (Vector& row : hidden_) {
    RmsNorm(model_.final_norm, 0, row);
    FORETOKEN_ASSIGN_OR_RETURN(const Vector some,
                               Product(model_.output, row, "input of output"));
    logits.insert(logits.end(), some.begin(), some.end());
  }
  return logits;
}

}  // namespace

ReferenceModel ReadReference(const ModelWeights& weights, bool pairs,
                             const std::vector<double>& divisors) {
  ReferenceModel model;
  model.config = weights.config();
  const int64_t head_dim = model.config.head_dim;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    model.frequencies.push_back(
        std::pow(
            static_cast<double>(model.config.rope_theta),
            -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)) /
        (divisors.empty() ? 1.0 : divisors[i]));
  }
  model.embedding = Decode(weights.embedding());
  if (!IsQuantised(weights.embedding())) {
    for (double& value : model.embedding) value = RoundToBFloat16(value);
  }
  model.final_norm = Decode(weights.final_norm());
  model.output = Matrix(weights.output(), {});
  for (const LayerWeights& from : weights.layers()) {
    ReferenceLayer& layer = model.layers.emplace_back();
    layer.attention_norm = Decode(from.attention_norm);
    layer.ffn_norm = Decode(from.ffn_norm);
    layer.q_norm = Decode(from.q_norm);
    layer.k_norm = Decode(from.k_norm);
    layer.q = Matrix(from.q, from.q_bias);
    layer.k = Matrix(from.k, from.k_bias);
    layer.v = Matrix(from.v, from.v_bias);
    layer.o = Matrix(from.o, from.o_bias);
    layer.gate = Matrix(from.gate, from.gate_bias);
    layer.up = Matrix(from.up, from.up_bias);
    layer.down = Matrix(from.down, from.down_bias);
    ShareScales({&layer.q, &layer.k, &layer.v});
    ShareScales({&layer.gate, &layer.up});
    if (!pairs) continue;
    for (ReferenceMatrix* matrix : {&layer.q, &layer.k}) {
      SplitPairs(head_dim, matrix->cols, matrix->values);
      SplitPairs(head_dim, 1, matrix->bias);
    }
  }
  return model;
}

absl::StatusOr<std::vector<double>> ReferenceLogits(
    const ReferenceModel& model, const std::vector<TokenId>& tokens,
    const WatchedOps& ops) {
  return Pass(model, ops).Logits(tokens);
}

}  // namespace foretoken::testing
