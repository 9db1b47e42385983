#include "common/infer/gguf_export.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/gguf/special_tokens.h"
#include "common/infer/gguf_model.h"
#include "common/infer/rotary.h"
#include "common/infer/tensor_layout.h"
#include "common/infer/weight_conversion.h"

namespace foretoken {
namespace {

struct KindTraits {
  GgufFileKind kind;
  const char* name;
  WeightType matrices;
};
constexpr KindTraits kKinds[] = {
    {GgufFileKind::kFloat32, "f32", WeightType::kFloat32},
    {GgufFileKind::kFloat16, "f16", WeightType::kFloat16},
    {GgufFileKind::kBFloat16, "bf16", WeightType::kBFloat16},
    {GgufFileKind::kQ8_0, "q8_0", WeightType::kQ8_0},
    {GgufFileKind::kQ4_0, "q4_0", WeightType::kQ4_0},
    {GgufFileKind::kQ4_K_M, "q4_k_m", WeightType::kQ4_K},
};

const KindTraits& TraitsOf(GgufFileKind kind) {
  return *std::find_if(
      std::begin(kKinds), std::end(kKinds),
      [kind](const KindTraits& traits) { return traits.kind == kind; });
}

const char* ArchitectureOf(ModelFamily family) {
  // Mistral's files say llama: the same network.
  return ModelFamilyName(family == ModelFamily::kMistral ? ModelFamily::kLlama
                                                         : family);
}

// The layers to which the "_M" mixtures give more bits: the first and the last
// eighth and every third in between (use_more_bits of llama.cpp).
bool GetsMoreBits(int32_t layer, int32_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 ||
         (layer - layers / 8) % 3 == 2;
}

WeightType WantedType(const ModelConfig& config, GgufFileKind kind,
                      const TensorSlot& slot) {
  if (slot.is_vector()) return WeightType::kFloat32;
  // The output matrix gets six bits where the others get four; it decides the
  // token directly.
  const bool four_bits =
      kind == GgufFileKind::kQ4_0 || kind == GgufFileKind::kQ4_K_M;
  const bool is_output = config.tied_embeddings
                             ? slot.role == TensorRole::kEmbedding
                             : slot.name == kOutputTensorName;
  if (four_bits && is_output) return WeightType::kQ6_K;
  if (kind == GgufFileKind::kQ4_K_M &&
      (absl::StrContains(slot.name, ".v_proj.") ||
       absl::StrContains(slot.name, ".down_proj."))) {
    int32_t layer = 0;
    std::sscanf(slot.name.c_str(), "model.layers.%d", &layer);
    if (GetsMoreBits(layer, config.n_layers)) return WeightType::kQ6_K;
  }
  return TraitsOf(kind).matrices;
}

// The type itself, or one with smaller blocks that fits the rows.
WeightType FittingType(WeightType wanted, int64_t cols) {
  WeightType type = wanted;
  if (cols % WeightTypeFormat(type).block != 0) {
    if (type == WeightType::kQ4_K) type = WeightType::kQ5_0;
    if (type == WeightType::kQ6_K) type = WeightType::kQ8_0;
  }
  if (cols % WeightTypeFormat(type).block != 0) type = WeightType::kFloat16;
  return type;
}

void AddModelKeys(const ModelConfig& config, GgufFileKind kind,
                  GgufWriter& writer) {
  const std::string architecture = ArchitectureOf(config.family);
  writer.String("general.architecture", architecture);
  writer.Uint32("general.file_type", static_cast<uint32_t>(kind));
  writer.Uint32("general.quantization_version", 2);
  const auto key = [&](const char* name) {
    return absl::StrCat(architecture, ".", name);
  };
  const std::pair<const char*, int32_t> integers[] = {
      {"vocab_size", config.vocab_size},
      {"context_length", config.max_positions},
      {"embedding_length", config.d_model},
      {"block_count", config.n_layers},
      {"feed_forward_length", config.d_ff},
      {"attention.head_count", config.n_heads},
      {"attention.head_count_kv", config.n_kv_heads},
      {"attention.key_length", config.head_dim},
      {"attention.value_length", config.head_dim},
      {"rope.dimension_count", config.head_dim},
  };
  for (const auto& [name, value] : integers) {
    writer.Uint32(key(name), static_cast<uint32_t>(value));
  }
  writer.Float32(key("attention.layer_norm_rms_epsilon"), config.rms_norm_eps);
  writer.Float32(key("rope.freq_base"), config.rope_theta);
  if (config.rope_scaling.type == RopeScaling::Type::kLinear) {
    writer.String(key("rope.scaling.type"), "linear");
    writer.Float32(key("rope.scaling.factor"), config.rope_scaling.factor);
  }
}

// Every end token must have a key, or the file's model would not stop at it.
absl::Status AddTokenKeys(const ModelConfig& config, GgufWriter& writer) {
  constexpr const char* kEndKeys[] = {kGgufEosKey,
                                      "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
  if (config.bos_token >= 0 && !writer.Has(kGgufBosKey)) {
    writer.Uint32(kGgufBosKey, static_cast<uint32_t>(config.bos_token));
  }
  std::vector<const char*> free;
  std::set<int64_t> named;
  for (const char* key : kEndKeys) {
    if (!writer.Has(key)) free.push_back(key);
    if (const auto token = writer.Integer(key)) named.insert(*token);
  }
  auto next = free.begin();
  for (const TokenId token : config.eos_tokens) {
    if (named.contains(token)) continue;
    if (next == free.end()) {
      return absl::UnimplementedError(absl::StrCat(
          "end token ", token, ": GGUF has keys for three, which name ",
          absl::StrJoin(named, ", ")));
    }
    writer.Uint32(*next++, static_cast<uint32_t>(token));
    named.insert(token);
  }
  return absl::OkStatus();
}

// GGUF has no keys for Llama 3's scaling: the file lists what it divides each
// frequency by.
std::vector<float> Divisors(const ModelConfig& config) {
  if (config.rope_scaling.type != RopeScaling::Type::kLlama3) {
    return config.rope_scaling.divisors;
  }
  ModelConfig plain = config;
  plain.rope_scaling = RopeScaling();
  const Rotary scaled(config), unscaled(plain);
  std::vector<float> divisors;
  for (int i = 0; i < scaled.half(); ++i) {
    divisors.push_back(
        static_cast<float>(unscaled.frequency(i) / scaled.frequency(i)));
  }
  return divisors;
}

// Writes tensors in turn, each padded.
class TensorStream {
 public:
  TensorStream(const std::string& path, ThreadPool& pool)
      : path_(path), pool_(pool), out_(path, std::ios::binary) {}

  void Bytes(absl::string_view bytes) {
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  // Rows of `cols` elements. `read` fills row `row` of the file.
  absl::Status Rows(const std::string& name, WeightType type, int64_t rows,
                    int64_t cols,
                    absl::FunctionRef<void(int64_t, absl::Span<float>)> read) {
    constexpr int64_t kChunkBytes = int64_t{16} << 20;
    const int64_t row_bytes = WeightTypeBytes(type, cols);
    const int64_t chunk = std::max<int64_t>(1, kChunkBytes / row_bytes);
    std::string bytes;
    for (int64_t first = 0; first < rows; first += chunk) {
      const int64_t count = std::min(chunk, rows - first);
      bytes.resize(static_cast<size_t>(count * row_bytes));
      FORETOKEN_RETURN_IF_ERROR(
          EncodeRows(name, type, first, count, cols, pool_, read,
                     reinterpret_cast<uint8_t*>(bytes.data())));
      Bytes(bytes);
    }
    Bytes(GgufWriter::Padding(static_cast<uint64_t>(rows * row_bytes)));
    return absl::OkStatus();
  }

  absl::Status Finish() {
    out_.close();
    if (out_.good()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path_, ": cannot write"));
  }

 private:
  const std::string path_;
  ThreadPool& pool_;
  std::ofstream out_;
};

absl::Status WriteTensor(const ModelConfig& config, const TensorSlot& slot,
                         WeightType type, TensorStream& stream) {
  const std::string name = GgufTensorName(slot.name);
  const WeightTensor& tensor = *slot.tensor;
  const bool pairs = IsStoredInPairs(config.family, name);
  const int64_t half = config.head_dim / 2;
  // The row of the model that the file has as row `stored`.
  const auto row_of = [&](int64_t stored) {
    const int64_t in_head = stored % config.head_dim;
    return pairs ? stored - in_head + in_head % 2 * half + in_head / 2 : stored;
  };
  if (slot.rows > 1) {
    return stream.Rows(name, type, slot.rows, slot.cols,
                       [&](int64_t row, absl::Span<float> out) {
                         tensor.CopyTo(row_of(row) * slot.cols, out);
                       });
  }
  return stream.Rows(name, type, 1, slot.cols,
                     [&](int64_t, absl::Span<float> out) {
                       for (int64_t i = 0; i < slot.cols; ++i) {
                         tensor.CopyTo(row_of(i), out.subspan(i, 1));
                       }
                     });
}

}  // namespace

std::optional<GgufFileKind> ParseGgufFileKind(absl::string_view name) {
  for (const KindTraits& traits : kKinds) {
    if (name == traits.name) return traits.kind;
  }
  return std::nullopt;
}

absl::Status ExportGguf(
    const ModelWeights& weights, GgufFileKind kind, const std::string& path,
    ThreadPool& pool, GgufWriter writer,
    absl::FunctionRef<void(const GgufExportedTensor&)> report) {
  const ModelConfig& config = weights.config();
  AddModelKeys(config, kind, writer);
  FORETOKEN_RETURN_IF_ERROR(AddTokenKeys(config, writer));
  const std::vector<float> divisors = Divisors(config);
  if (!divisors.empty()) {
    // llama.cpp reads the tensor in this architecture alone.
    if (absl::string_view(ArchitectureOf(config.family)) != "llama") {
      return absl::UnimplementedError(absl::StrCat(
          "a ", ArchitectureOf(config.family),
          " model with Llama 3's rotary scaling: GGUF has no form for it"));
    }
    writer.Tensor(kGgufRopeFreqs, static_cast<uint32_t>(WeightType::kFloat32),
                  {static_cast<int64_t>(divisors.size())});
  }
  ModelTensors tensors;
  tensors.embedding = weights.embedding();
  tensors.output = weights.output();
  tensors.final_norm = weights.final_norm();
  tensors.layers.assign(weights.layers().begin(), weights.layers().end());
  const std::vector<TensorSlot> slots = LayOutTensors(config, tensors);
  std::vector<WeightType> types;
  for (const TensorSlot& slot : slots) {
    const WeightType wanted = WantedType(config, kind, slot);
    types.push_back(FittingType(wanted, slot.cols));
    const std::string name = GgufTensorName(slot.name);
    writer.Tensor(name, static_cast<uint32_t>(types.back()), slot.shape());
    report({name, wanted, types.back()});
  }
  // Renamed when it is whole: a file that was cut off would pass for a model.
  const std::string partial = path + ".partial";
  TensorStream stream(partial, pool);
  stream.Bytes(writer.Header());
  absl::Status status;
  if (!divisors.empty()) {
    status =
        stream.Rows(kGgufRopeFreqs, WeightType::kFloat32, 1,
                    static_cast<int64_t>(divisors.size()),
                    [&](int64_t, absl::Span<float> out) {
                      std::copy(divisors.begin(), divisors.end(), out.begin());
                    });
  }
  for (size_t i = 0; i < slots.size() && status.ok(); ++i) {
    status = WriteTensor(config, slots[i], types[i], stream);
  }
  const absl::Status written = stream.Finish();
  if (status.ok()) status = written;
  if (status.ok() && std::rename(partial.c_str(), path.c_str()) != 0) {
    status = absl::DataLossError(absl::StrCat(path, ": cannot write"));
  }
  if (!status.ok()) std::remove(partial.c_str());
  return status;
}

}  // namespace foretoken
