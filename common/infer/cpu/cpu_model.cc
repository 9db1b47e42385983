#include "common/infer/cpu/cpu_model.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/infer/head_ids.h"
#include "common/infer/tensor_layout.h"
#include "common/infer/weight_types.h"

namespace foretoken {
namespace {

void CopyRow(const WeightTensor& tensor, int64_t row, float* out) {
  tensor.CopyTo(row * tensor.cols, absl::MakeSpan(out, tensor.cols));
}

std::vector<float> Vector(const WeightTensor& tensor, int64_t padded) {
  // Zeros in the padding, which products and norms then ignore.
  std::vector<float> out(padded, 0.0f);
  tensor.CopyTo(0, absl::MakeSpan(out.data(), tensor.rows * tensor.cols));
  return out;
}

// The column of a joined matrix whose part has these rows, or zeros.
PackedMatrix::StoredColumn Stored(const WeightTensor& tensor, int64_t row) {
  // Null: PackStored leaves such a column zero.
  if (row < 0) return {tensor.type, nullptr};
  return {tensor.type, tensor.StoredRow(row)};
}

// Bytes of the matrices that passes multiply, as they are stored.
int64_t MatrixBytes(const ModelWeights& weights) {
  int64_t bytes = weights.output().bytes();
  for (const LayerWeights& layer : weights.layers()) {
    for (const WeightTensor* matrix : {&layer.q, &layer.k, &layer.v, &layer.o,
                                       &layer.gate, &layer.up, &layer.down}) {
      bytes += matrix->bytes();
    }
  }
  return bytes;
}

constexpr const char* kMatrixTypeNames[kMatrixTypes] = {
    "fp32", "bf16", "q8_0", "q4_0", "q4_1",
    "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"};

}  // namespace

absl::StatusOr<CpuModel> CpuModel::Build(std::unique_ptr<ModelWeights> weights,
                                         const CpuModelOptions& options,
                                         ThreadPool& pool) {
  CpuModel model;
  model.config_ = weights->config();
  model.precision_ = options.precision;
  model.stored_bytes_ = MatrixBytes(*weights);
  model.conversion_ = Resolve(options.conversion, model.stored_bytes_,
                              options.precision != Precision::kFloat32);
  model.head_ids_ = ChooseHeadIds(model.config_.vocab_size, options.head_size,
                                  model.config_.eos_tokens, options.head_first);
  // First: it reads every byte.
  // The file is read once from front to back, into the page cache; packing then
  // reads in any order.
  model.weights_digest_ = HexDigest(weights->digest());
  const ModelConfig& config = model.config_;
  model.d_model_padded_ = static_cast<int32_t>(PadTo(config.d_model, kCpuPad));
  model.head_dim_padded_ =
      static_cast<int32_t>(PadTo(config.head_dim, kCpuPad));
  model.d_ff_padded_ = static_cast<int32_t>(PadTo(config.d_ff, kGemmColumns));
  const int64_t kv_columns =
      PadTo(int64_t{config.n_kv_heads} * model.head_dim_padded_, kGemmColumns);
  QkvColumns& qkv = model.qkv_columns_;
  qkv.keys =
      PadTo(int64_t{config.n_heads} * model.head_dim_padded_, kGemmColumns);
  qkv.values = qkv.keys + kv_columns;
  qkv.total = qkv.values + kv_columns;

  model.weights_ = std::move(weights);
  FORETOKEN_RETURN_IF_ERROR(model.BuildHead(pool));
  model.layers_.resize(config.n_layers);
  for (int32_t i = 0; i < config.n_layers; ++i) {
    FORETOKEN_RETURN_IF_ERROR(Annotate(
        model.BuildLayer(model.weights_->layers()[i], pool, model.layers_[i]),
        absl::StrCat("layer ", i)));
  }
  model.final_norm_ =
      Vector(model.weights_->final_norm(), model.d_model_padded_);
  // The mapping is closed: nothing refers to the file after this, and it may be
  // replaced.
  model.weights_ = nullptr;
  return model;
}

absl::StatusOr<CpuModel::Source> CpuModel::Convert(absl::string_view name,
                                                   const WeightTensor& tensor,
                                                   ThreadPool& pool) {
  Source source;
  // By default the tensor as stored, a view into the mapping.
  source.tensor = tensor;
  const WeightType type = ConvertedType(conversion_, tensor);
  if (type == tensor.type) return source;
  FORETOKEN_ASSIGN_OR_RETURN(
      source.tensor, ConvertRows(name, tensor, type, {}, pool, source.memory));
  // Pages of the file that were read are given back at once, so that stored and
  // packed forms are never in memory together.
  weights_->Release(tensor);
  return source;
}

// First of all, so that the largest tensors are mapped while little else is.
absl::Status CpuModel::BuildHead(ThreadPool& pool) {
  const WeightTensor& output = weights_->output();
  const WeightTensor& embedding = weights_->embedding();
  const WeightType type = ConvertedType(conversion_, output);
  if (type == output.type) {
    FORETOKEN_ASSIGN_OR_RETURN(head_, PackRows(output, head_ids_, pool));
  } else {
    HugeBuffer memory;
    FORETOKEN_ASSIGN_OR_RETURN(
        const WeightTensor converted,
        ConvertRows(kOutputTensorName, output, type, head_ids_, pool, memory));
    FORETOKEN_ASSIGN_OR_RETURN(head_, PackPlain(converted, pool));
  }
  if (!config_.tied_embeddings) {
    // Released only after it was packed; a tied embedding is the same tensor
    // and still needed.
    weights_->Release(output);
    return BuildEmbedding(pool);
  }
  // The head holds every embedding row in the same type, so a copy would only
  // cost memory.
  embedding_in_head_ = head_ids_.empty() &&
                       type == ConvertedEmbeddingType(conversion_, embedding);
  if (!embedding_in_head_) return BuildEmbedding(pool);
  weights_->Unload(embedding);
  return absl::OkStatus();
}

absl::Status CpuModel::BuildEmbedding(ThreadPool& pool) {
  const WeightTensor& embedding = weights_->embedding();
  const WeightType type = ConvertedEmbeddingType(conversion_, embedding);
  if (type != embedding.type) {
    FORETOKEN_ASSIGN_OR_RETURN(
        stored_embedding_,
        ConvertRows("embed_tokens", embedding, type, {}, pool, embedding_));
    weights_->Release(embedding);
    return absl::OkStatus();
  }
  if (StaysQuantised({&embedding})) {
    // A copy: the file may be truncated while the model is served.
    FORETOKEN_ASSIGN_OR_RETURN(
        embedding_,
        HugeBuffer::Allocate(embedding.bytes(), HugeBuffer::Use::kWhole));
    std::memcpy(embedding_.data(), embedding.data, embedding.bytes());
    stored_embedding_ = embedding;
    stored_embedding_.data = embedding_.data();
    weights_->Release(embedding);
    return absl::OkStatus();
  }
  const int64_t d_model = config_.d_model;
  const bool fp32 = precision_ == Precision::kFloat32;
  FORETOKEN_ASSIGN_OR_RETURN(
      embedding_,
      HugeBuffer::Allocate(config_.vocab_size * d_model * (fp32 ? 4 : 2)));
  // Rounded to the precision of the pass, row by row.
  pool.ParallelFor(config_.vocab_size, [&](int64_t token) {
    if (fp32) {
      CopyRow(embedding, token, embedding_.as<float>() + token * d_model);
      return;
    }
    std::vector<float> row(d_model);
    CopyRow(embedding, token, row.data());
    uint16_t* out = embedding_.as<uint16_t>() + token * d_model;
    for (int64_t i = 0; i < d_model; ++i) out[i] = BFloat16FromFloat(row[i]);
  });
  weights_->Release(embedding);
  return absl::OkStatus();
}

void CpuModel::CopyEmbedding(TokenId token, float* out) const {
  const int64_t d_model = config_.d_model;
  if (stored_embedding_.present()) {
    CopyRow(stored_embedding_, token, out);
  } else if (embedding_in_head_) {
    head_.CopyColumn(token, absl::MakeSpan(out, d_model));
  } else if (precision_ == Precision::kFloat32) {
    std::memcpy(out, embedding_.as<float>() + token * d_model,
                d_model * sizeof(float));
  } else {
    const uint16_t* row = embedding_.as<uint16_t>() + token * d_model;
    for (int64_t i = 0; i < d_model; ++i) out[i] = FloatFromBFloat16(row[i]);
  }
  // Padding is zero, as in every activation.
  for (int64_t i = d_model; i < d_model_padded_; ++i) out[i] = 0.0f;
}

int64_t CpuModel::bytes_per_pass() const {
  int64_t embedding_row =
      config_.d_model * (precision_ == Precision::kBFloat16 ? 2 : 4);
  if (stored_embedding_.present()) {
    embedding_row = WeightTypeBytes(stored_embedding_.type, config_.d_model);
  } else if (embedding_in_head_) {
    embedding_row = head_.block_bytes(0) / kGemmColumns;
  }
  // One row of the embedding per row of a pass; small, but counted for models
  // with few layers.
  int64_t bytes = embedding_row;
  for (const PackedMatrix* matrix : Matrices()) bytes += matrix->bytes();
  return bytes;
}

std::array<int64_t, kActivationTypes> CpuModel::products_per_row() const {
  std::array<int64_t, kActivationTypes> products = {};
  for (const PackedMatrix* matrix : Matrices()) {
    products[static_cast<int>(matrix->input())] += matrix->elements();
  }
  return products;
}

std::string CpuModel::MatrixTypes() const {
  bool seen[kMatrixTypes] = {};
  for (const PackedMatrix* matrix : Matrices()) {
    for (int64_t i = 0; i < matrix->blocks(); ++i) {
      seen[static_cast<int>(matrix->type(i))] = true;
    }
  }
  std::vector<const char*> names;
  for (int i = 0; i < kMatrixTypes; ++i) {
    if (seen[i]) names.push_back(kMatrixTypeNames[i]);
  }
  return absl::StrJoin(names, "+");
}

std::vector<const PackedMatrix*> CpuModel::Matrices() const {
  std::vector<const PackedMatrix*> matrices = {&head_};
  for (const CpuLayer& layer : layers_) {
    for (const PackedMatrix* matrix :
         {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      matrices.push_back(matrix);
    }
  }
  return matrices;
}

absl::Status CpuModel::BuildLayer(const LayerWeights& source, ThreadPool& pool,
                                  CpuLayer& layer) {
  layer.attention_norm = Vector(source.attention_norm, d_model_padded_);
  layer.ffn_norm = Vector(source.ffn_norm, d_model_padded_);
  // Present in pairs: a model with a query norm has a key norm.
  if (source.q_norm.present()) {
    layer.q_norm = Vector(source.q_norm, head_dim_padded_);
    layer.k_norm = Vector(source.k_norm, head_dim_padded_);
  }
  // After packing, and only then: packing still reads the mapping.
  const auto release = [&](std::initializer_list<const WeightTensor*> packed) {
    for (const WeightTensor* tensor : packed) weights_->Release(*tensor);
  };
  // In a block, so that converted copies are freed before the next matrix is
  // converted.
  {
    LayerWeights joined;
    FORETOKEN_ASSIGN_OR_RETURN(const Source q,
                               Convert("q_proj", source.q, pool));
    FORETOKEN_ASSIGN_OR_RETURN(const Source k,
                               Convert("k_proj", source.k, pool));
    FORETOKEN_ASSIGN_OR_RETURN(const Source v,
                               Convert("v_proj", source.v, pool));
    joined.q = q.tensor;
    joined.k = k.tensor;
    joined.v = v.tensor;
    FORETOKEN_ASSIGN_OR_RETURN(layer.qkv, PackQkv(joined, pool));
  }
  release({&source.q, &source.k, &source.v});
  FORETOKEN_ASSIGN_OR_RETURN(layer.output, PackOutput(source.o, pool));
  release({&source.o});
  {
    LayerWeights joined;
    FORETOKEN_ASSIGN_OR_RETURN(const Source gate,
                               Convert("gate_proj", source.gate, pool));
    FORETOKEN_ASSIGN_OR_RETURN(const Source up,
                               Convert("up_proj", source.up, pool));
    joined.gate = gate.tensor;
    joined.up = up.tensor;
    FORETOKEN_ASSIGN_OR_RETURN(layer.gate_up, PackGateUp(joined, pool));
  }
  release({&source.gate, &source.up});
  {
    FORETOKEN_ASSIGN_OR_RETURN(const Source down,
                               Convert("down_proj", source.down, pool));
    FORETOKEN_ASSIGN_OR_RETURN(layer.down, PackPlain(down.tensor, pool));
  }
  release({&source.down});
  AddBiases(source, layer);
  return absl::OkStatus();
}

void CpuModel::AddBiases(const LayerWeights& source, CpuLayer& layer) const {
  if (source.q_bias.present()) {
    // Laid out like the columns of the joined matrix, padding between heads
    // included.
    layer.qkv_bias.assign(qkv_columns_.total, 0.0f);
    const std::pair<const WeightTensor*, int64_t> parts[] = {
        {&source.q_bias, 0},
        {&source.k_bias, qkv_columns_.keys},
        {&source.v_bias, qkv_columns_.values}};
    for (const auto& [bias, column] : parts) {
      const std::vector<float> values = Vector(*bias, bias->rows * bias->cols);
      float* out = layer.qkv_bias.data() + column;
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
    // Interleaved as the blocks of the matrix are.
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
}

bool CpuModel::StaysQuantised(
    std::initializer_list<const WeightTensor*> tensors) const {
  // fp32 is the reference: everything is multiplied as floats.
  if (precision_ == Precision::kFloat32) return false;
  for (const WeightTensor* tensor : tensors) {
    if (!QuantisedMatrixType(tensor->type).has_value()) return false;
  }
  return true;
}

absl::StatusOr<PackedMatrix> CpuModel::PackPlain(const WeightTensor& tensor,
                                                 ThreadPool& pool) {
  return PackRows(tensor, {}, pool);
}

absl::StatusOr<PackedMatrix> CpuModel::PackRows(const WeightTensor& tensor,
                                                absl::Span<const TokenId> rows,
                                                ThreadPool& pool) {
  const int64_t columns =
      rows.empty() ? tensor.rows : static_cast<int64_t>(rows.size());
  const auto row_of = [&](int64_t column) {
    return rows.empty() ? column : rows[column];
  };
  if (StaysQuantised({&tensor})) {
    return PackedMatrix::PackStored(
        columns, tensor.cols, pool, arena_,
        [&](int64_t column) { return Stored(tensor, row_of(column)); });
  }
  return PackedMatrix::Pack(float_type(), columns, tensor.cols, pool, arena_,
                            [&](int64_t column, float* out) {
                              CopyRow(tensor, row_of(column), out);
                            });
}

absl::StatusOr<PackedMatrix> CpuModel::PackQkv(const LayerWeights& source,
                                               ThreadPool& pool) {
  // The tensor of a column and its row there, or -1 for a column of padding.
  const auto find = [&](int64_t column) {
    const WeightTensor* tensor = &source.q;
    if (column >= qkv_columns_.values) {
      tensor = &source.v;
      column -= qkv_columns_.values;
    } else if (column >= qkv_columns_.keys) {
      tensor = &source.k;
      column -= qkv_columns_.keys;
    }
    // Heads are padded to whole vectors, so columns and rows differ.
    const int64_t d = column % head_dim_padded_;
    const int64_t row = column / head_dim_padded_ * config_.head_dim + d;
    const bool used = d < config_.head_dim && row < tensor->rows;
    return std::pair<const WeightTensor*, int64_t>(tensor, used ? row : -1);
  };
  if (StaysQuantised({&source.q, &source.k, &source.v})) {
    return PackedMatrix::PackStored(qkv_columns_.total, config_.d_model, pool,
                                    arena_, [&](int64_t column) {
                                      const auto [tensor, row] = find(column);
                                      return Stored(*tensor, row);
                                    });
  }
  return PackedMatrix::Pack(float_type(), qkv_columns_.total, config_.d_model,
                            pool, arena_, [&](int64_t column, float* out) {
                              const auto [tensor, row] = find(column);
                              if (row >= 0) CopyRow(*tensor, row, out);
                            });
}

absl::StatusOr<PackedMatrix> CpuModel::PackOutput(const WeightTensor& tensor,
                                                  ThreadPool& pool) {
  // Quantised blocks run along a row: with heads of whole blocks a padded
  // layout equals the stored one. Otherwise the blocks straddle heads and have
  // to be unpacked.
  if (config_.head_dim % kQuantBlock == 0) {
    FORETOKEN_ASSIGN_OR_RETURN(const Source output,
                               Convert("o_proj", tensor, pool));
    return PackPlain(output.tensor, pool);
  }
  return PackedMatrix::Pack(
      float_type(), config_.d_model,
      int64_t{config_.n_heads} * head_dim_padded_, pool, arena_,
      [&](int64_t column, float* out) {
        for (int32_t head = 0; head < config_.n_heads; ++head) {
          tensor.CopyTo(column * tensor.cols + int64_t{head} * config_.head_dim,
                        absl::MakeSpan(out + int64_t{head} * head_dim_padded_,
                                       config_.head_dim));
        }
      });
}

absl::StatusOr<PackedMatrix> CpuModel::PackGateUp(const LayerWeights& source,
                                                  ThreadPool& pool) {
  const auto find = [&](int64_t column) {
    const int64_t block = column / kGemmColumns;
    // Even blocks are the gate's, odd ones those of the up-projection.
    const int64_t row = block / 2 * kGemmColumns + column % kGemmColumns;
    return std::pair<const WeightTensor*, int64_t>(
        block % 2 == 0 ? &source.gate : &source.up,
        row < config_.d_ff ? row : -1);
  };
  const int64_t columns = 2 * int64_t{d_ff_padded_};
  if (StaysQuantised({&source.gate, &source.up})) {
    return PackedMatrix::PackStored(columns, config_.d_model, pool, arena_,
                                    [&](int64_t column) {
                                      const auto [tensor, row] = find(column);
                                      return Stored(*tensor, row);
                                    });
  }
  return PackedMatrix::Pack(float_type(), columns, config_.d_model, pool,
                            arena_, [&](int64_t column, float* out) {
                              const auto [tensor, row] = find(column);
                              if (row >= 0) CopyRow(*tensor, row, out);
                            });
}

}  // namespace foretoken
