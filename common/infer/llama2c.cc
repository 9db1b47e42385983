#include "common/infer/llama2c.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/infer/safetensors.h"
#include "common/infer/tensor_layout.h"

namespace foretoken {
namespace {

constexpr int64_t kHeaderInts = 7;
constexpr int64_t kHeaderBytes = kHeaderInts * 4;
constexpr uint32_t kVersionedMagic = 0x616b3432;  // "ak42", export.py
constexpr TokenId kBos = 1;
constexpr TokenId kEos = 2;

// memcpy, because the bytes of a span need not be aligned.
uint32_t ReadWord(absl::Span<const uint8_t> bytes, int64_t index) {
  uint32_t word;
  std::memcpy(&word, bytes.data() + index * 4, sizeof(word));
  return word;
}

absl::StatusOr<ModelConfig> ParseHeader(absl::Span<const uint8_t> bytes) {
  if (static_cast<int64_t>(bytes.size()) < kHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("is ", bytes.size(), " bytes long, want at least the ",
                     kHeaderBytes, " of the header"));
  }
  if (ReadWord(bytes, 0) == kVersionedMagic) {
    return absl::UnimplementedError(
        absl::StrCat("is a versioned llama2.c checkpoint (version ",
                     ReadWord(bytes, 1), "), want the legacy format"));
  }
  struct Field {
    const char* name;
    int32_t max;
    int32_t ModelConfig::*member;
  };
  constexpr Field kFields[kHeaderInts] = {
      {"dim", ModelConfig::kMaxModelWidth, &ModelConfig::d_model},
      {"hidden_dim", ModelConfig::kMaxFeedForward, &ModelConfig::d_ff},
      {"n_layers", ModelConfig::kMaxLayers, &ModelConfig::n_layers},
      {"n_heads", ModelConfig::kMaxHeads, &ModelConfig::n_heads},
      {"n_kv_heads", ModelConfig::kMaxHeads, &ModelConfig::n_kv_heads},
      {"vocab_size", ModelConfig::kMaxVocabulary, &ModelConfig::vocab_size},
      {"max_seq_len", ModelConfig::kMaxPositions, &ModelConfig::max_positions},
  };
  ModelConfig config;
  // Until a negative vocab_size says otherwise.
  config.tied_embeddings = true;
  for (int64_t i = 0; i < kHeaderInts; ++i) {
    const Field& field = kFields[i];
    int64_t value = static_cast<int32_t>(ReadWord(bytes, i));
    // A negative vocab_size marks a separate output matrix.
    const bool is_vocabulary = field.member == &ModelConfig::vocab_size;
    if (is_vocabulary && value < 0) {
      config.tied_embeddings = false;
      value = -value;
    }
    // The vocabulary must contain BOS and EOS.
    const int64_t min = is_vocabulary ? kEos + 1 : 1;
    if (value < min || value > field.max) {
      return absl::InvalidArgumentError(absl::StrCat(
          field.name, " is ", value, ", want ", min, "..", field.max));
    }
    config.*field.member = static_cast<int32_t>(value);
  }
  if (config.n_heads % config.n_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("n_kv_heads is ", config.n_kv_heads,
                     ", want a divisor of n_heads ", config.n_heads));
  }
  // head_dim is dim / n_heads and must be even for the rotary pairs.
  if (config.d_model % (2 * config.n_heads) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dim is ", config.d_model, ", want a multiple of twice ",
                     "n_heads ", config.n_heads));
  }
  config.head_dim = config.d_model / config.n_heads;
  // As in run.c, whose generate() stops at BOS and whose chat() stops at EOS.
  config.rms_norm_eps = 1e-5f;
  config.rope_theta = 10000.0f;
  config.bos_token = kBos;
  config.eos_tokens = {kBos, kEos};
  FORETOKEN_RETURN_IF_ERROR(config.Validate());
  return config;
}

// Returns the file's arrays one after the other.
class ArrayReader {
 public:
  explicit ArrayReader(const uint8_t* data) : next_(data) {}

  WeightTensor Take(int64_t rows, int64_t cols) {
    const WeightTensor tensor{next_, WeightType::kFloat32, rows, cols};
    next_ += tensor.bytes();
    return tensor;
  }
  void Skip(int64_t floats) { next_ += floats * 4; }

 private:
  const uint8_t* next_;
};

// The file has no table of contents; its size is the only check of the header.
int64_t FloatsInFile(const ModelConfig& config) {
  const int64_t dim = config.d_model;
  const int64_t kv_dim = int64_t{config.n_kv_heads} * config.head_dim;
  const int64_t table = int64_t{config.vocab_size} * dim;
  const int64_t layer = 2 * dim + 2 * dim * dim + 2 * kv_dim * dim +
                        3 * int64_t{config.d_ff} * dim;
  const int64_t rotary = int64_t{config.max_positions} * config.head_dim;
  return (config.tied_embeddings ? 1 : 2) * table + config.n_layers * layer +
         dim + rotary;
}

// Binds the arrays as stored; wq and wk are still in llama2.c's row order.
void BindArrays(const ModelConfig& config, const uint8_t* data,
                ModelTensors& tensors) {
  const int64_t dim = config.d_model;
  const int64_t kv_dim = int64_t{config.n_kv_heads} * config.head_dim;
  const int64_t d_ff = config.d_ff;
  ArrayReader arrays(data);
  struct LayerArray {
    WeightTensor LayerWeights::*member;
    int64_t rows;
    int64_t cols;
  };
  const LayerArray kLayerArrays[] = {{&LayerWeights::attention_norm, 1, dim},
                                     {&LayerWeights::q, dim, dim},
                                     {&LayerWeights::k, kv_dim, dim},
                                     {&LayerWeights::v, kv_dim, dim},
                                     {&LayerWeights::o, dim, dim},
                                     {&LayerWeights::ffn_norm, 1, dim},
                                     {&LayerWeights::gate, d_ff, dim},
                                     {&LayerWeights::down, dim, d_ff},
                                     {&LayerWeights::up, d_ff, dim}};
  tensors.embedding = arrays.Take(config.vocab_size, dim);
  // Each array is stored for all layers before the next array.
  for (const LayerArray& array : kLayerArrays) {
    for (LayerWeights& layer : tensors.layers) {
      layer.*array.member = arrays.Take(array.rows, array.cols);
    }
  }
  tensors.final_norm = arrays.Take(1, dim);
  // Two rotary tables of max_positions * head_dim / 2 floats each.
  arrays.Skip(int64_t{config.max_positions} * config.head_dim);
  if (!config.tied_embeddings) {
    tensors.output = arrays.Take(config.vocab_size, dim);
  }
}

// Moves row 2i of each head to i, and row 2i + 1 to i + head_dim / 2.
std::vector<uint8_t> SplitRotaryPairs(const WeightTensor& tensor,
                                      int64_t head_dim) {
  const int64_t row_bytes = tensor.cols * 4;
  std::vector<uint8_t> out(static_cast<size_t>(tensor.bytes()));
  for (int64_t row = 0; row < tensor.rows; ++row) {
    const int64_t within = row % head_dim;
    const int64_t to =
        row - within + within / 2 + (within % 2) * (head_dim / 2);
    std::memcpy(out.data() + to * row_bytes, tensor.data + row * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  return out;
}

std::string SerializeWeights(const ModelConfig& config, const uint8_t* data) {
  ModelTensors tensors;
  const std::vector<TensorSlot> slots = LayOutTensors(config, tensors);
  BindArrays(config, data, tensors);
  std::vector<std::vector<uint8_t>> reordered;
  reordered.reserve(2 * tensors.layers.size());
  for (LayerWeights& layer : tensors.layers) {
    for (WeightTensor* tensor : {&layer.q, &layer.k}) {
      reordered.push_back(SplitRotaryPairs(*tensor, config.head_dim));
      tensor->data = reordered.back().data();
    }
  }
  std::vector<SafetensorsSource> sources;
  for (const TensorSlot& slot : slots) {
    sources.push_back(
        {slot.name, slot.tensor->type, slot.shape(),
         absl::MakeConstSpan(slot.tensor->data,
                             static_cast<size_t>(slot.tensor->bytes()))});
  }
  return SerializeSafetensors(sources);
}

Json ConfigJson(const ModelConfig& config) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", config.d_model},
          {"intermediate_size", config.d_ff},
          {"num_hidden_layers", config.n_layers},
          {"num_attention_heads", config.n_heads},
          {"num_key_value_heads", config.n_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab_size", config.vocab_size},
          {"max_position_embeddings", config.max_positions},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", config.tied_embeddings},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"bos_token_id", config.bos_token},
          {"eos_token_id", config.eos_tokens},
          {"torch_dtype", "float32"}};
}

absl::StatusOr<Llama2cFiles> Convert(absl::Span<const uint8_t> bytes) {
  Llama2cFiles files;
  FORETOKEN_ASSIGN_OR_RETURN(files.config, ParseHeader(bytes));
  const int64_t want = kHeaderBytes + 4 * FloatsInFile(files.config);
  if (static_cast<int64_t>(bytes.size()) != want) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is ", bytes.size(), " bytes long, want ", want, " by its header"));
  }
  // The exact size check above makes all reads below safe.
  files.safetensors =
      SerializeWeights(files.config, bytes.data() + kHeaderBytes);
  const Json generation = {{"bos_token_id", files.config.bos_token},
                           {"eos_token_id", files.config.eos_tokens}};
  files.generation_config = generation.dump(2) + "\n";
  files.config_json = ConfigJson(files.config).dump(2) + "\n";
  return files;
}

}  // namespace

absl::StatusOr<Llama2cFiles> ConvertLlama2c(absl::Span<const uint8_t> bytes,
                                            const std::string& file) {
  absl::StatusOr<Llama2cFiles> files = Convert(bytes);
  if (!files.ok()) return Annotate(files.status(), file);
  return files;
}

absl::StatusOr<Llama2cFiles> ConvertLlama2cFile(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const MappedFile map, MappedFile::Open(path));
  return ConvertLlama2c(map.bytes(), path);
}

absl::Status WriteLlama2cFiles(const Llama2cFiles& files,
                               const std::string& directory) {
  const std::string prefix = directory + "/";
  FORETOKEN_RETURN_IF_ERROR(
      WriteFileAtomically(prefix + "model.safetensors", files.safetensors));
  FORETOKEN_RETURN_IF_ERROR(WriteFileAtomically(
      prefix + "generation_config.json", files.generation_config));
  return WriteFileAtomically(prefix + "config.json", files.config_json);
}

}  // namespace foretoken
