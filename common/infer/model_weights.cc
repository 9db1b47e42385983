#include "common/infer/model_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/huge_buffer.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/infer/checkpoint_files.h"
#include "common/infer/checkpoint_pooling.h"
#include "common/infer/gguf_model.h"
#include "common/infer/model_path.h"
#include "common/infer/random_weights.h"
#include "common/infer/tensor_layout.h"

namespace foretoken {
namespace {

// Owner of the bytes: the maps of a checkpoint, or one block of memory.
struct Storage {
  CheckpointFiles files;
  GgufFiles gguf;
  HugeBuffer memory;
};

class StoredWeights : public ModelWeights {
 public:
  explicit StoredWeights(const ModelConfig& config)
      : config_(config), slots_(LayOutTensors(config_, tensors_)) {}

  const ModelConfig& config() const override { return config_; }
  const WeightTensor& embedding() const override { return tensors_.embedding; }
  const WeightTensor& output() const override { return tensors_.output; }
  const WeightTensor& final_norm() const override {
    return tensors_.final_norm;
  }
  absl::Span<const LayerWeights> layers() const override {
    return tensors_.layers;
  }

  // Lazy, because it reads every byte of the checkpoint.
  const Sha256Digest& digest() const override {
    absl::call_once(digest_once_, [this] { digest_ = ComputeDigest(); });
    return digest_;
  }

  void Release(const WeightTensor& tensor) override {
    if (tensor.present()) DropPages(tensor.data, tensor.bytes());
    ReportDone(tensor);
  }

  void Unload(const WeightTensor& tensor) const override {
    if (tensor.present() && is_mapped()) DropPages(tensor.data, tensor.bytes());
    ReportDone(tensor);
  }

  void Watch(std::function<void(int64_t bytes)> read) override {
    read_ = std::move(read);
    done_.clear();
  }

  absl::Span<const TensorSlot> slots() const { return slots_; }

  // Call after the tensors of all slots are set. `random_seed`: what the bytes
  // follow from, with names, types and shapes.
  void Adopt(Storage storage,
             std::optional<uint64_t> random_seed = std::nullopt) {
    storage_ = std::move(storage);
    random_seed_ = random_seed;
    if (config_.tied_embeddings) tensors_.output = tensors_.embedding;
  }

 private:
  bool is_mapped() const { return storage_.memory.data() == nullptr; }

  void ReportDone(const WeightTensor& tensor) const {
    // Vectors are not reported (BytesOf counts matrices only), and a tied
    // matrix once.
    if (read_ == nullptr || tensor.rows <= 1) return;
    if (done_.insert(tensor.data).second) read_(tensor.bytes());
  }

  // Only whole pages: their neighbours may be in use.
  static void DropPages(const uint8_t* data, int64_t bytes) {
    const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t first = reinterpret_cast<uintptr_t>(data);
    const uintptr_t begin = (first + page - 1) / page * page;
    const uintptr_t end = (first + static_cast<uintptr_t>(bytes)) / page * page;
    if (begin < end) {
      // The mapping stays valid: pages that are read again come from the file.
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
  }

  Sha256Digest ComputeDigest() const {
    // By name, so that the digest does not depend on shards or file order.
    std::vector<const TensorSlot*> by_name;
    for (const TensorSlot& slot : slots_) by_name.push_back(&slot);
    std::sort(by_name.begin(), by_name.end(),
              [](const TensorSlot* a, const TensorSlot* b) {
                return a->name < b->name;
              });
    Sha256 sha;
    // The seed stands for the bytes, as they follow from it; hashing
    // gigabytes of random weights would only take time.
    if (random_seed_.has_value()) {
      sha.Update(absl::StrCat("random weights ", kRandomWeightsVersion,
                              ", seed ", *random_seed_, "\n"));
    }
    for (const TensorSlot* slot : by_name) {
      const WeightTensor& tensor = *slot->tensor;
      sha.Update(absl::StrCat(slot->name, " ", WeightTypeName(tensor.type), " ",
                              ShapeText(slot->shape()),
                              tensor.paired_rows > 0 ? " pairs\n" : "\n"));
      if (random_seed_.has_value()) continue;
      constexpr int64_t kPart = int64_t{4} << 20;
      for (int64_t at = 0; at < tensor.bytes(); at += kPart) {
        const int64_t bytes = std::min(kPart, tensor.bytes() - at);
        sha.Update(absl::MakeConstSpan(tensor.data + at, bytes));
        // Behind the reader, so that the checkpoint does not push other files
        // out of the page cache.
        if (is_mapped()) DropPages(tensor.data + at, bytes);
        if (read_ != nullptr) read_(bytes);
      }
    }
    return sha.Finish();
  }

  const ModelConfig config_;
  ModelTensors tensors_;
  const std::vector<TensorSlot> slots_;  // into tensors_
  // After the move of the storage the tensors still point into it: mappings and
  // blocks keep their address.
  Storage storage_;
  std::optional<uint64_t> random_seed_;
  std::function<void(int64_t bytes)> read_;
  mutable std::set<const uint8_t*> done_;  // matrices that were reported
  mutable absl::once_flag digest_once_;
  mutable Sha256Digest digest_;
};

std::optional<WeightType> WeightTypeOf(const std::string& dtype) {
  for (const WeightType type :
       {WeightType::kFloat32, WeightType::kFloat16, WeightType::kBFloat16}) {
    if (dtype == WeightTypeName(type)) return type;
  }
  return std::nullopt;
}

// Rotary tables stored by old checkpoints; they follow from the config.
bool IsRotaryTable(const std::string& name) {
  return absl::EndsWith(name, "rotary_emb.inv_freq");
}

absl::Status CheckedTensorError(const CheckpointTensor& stored,
                                const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      stored.file, ": tensor ", absl::CEscape(stored.tensor.name), " ", what));
}

absl::Status BindTensor(const CheckpointFiles& files,
                        const std::string& directory, const TensorSlot& slot) {
  const auto found = files.tensors.find(slot.name);
  if (found == files.tensors.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": tensor ", slot.name, " is missing, want ",
                     ShapeText(slot.shape())));
  }
  const CheckpointTensor& stored = found->second;
  // Before the type, whose message would be less helpful for a wrong file.
  if (stored.tensor.shape != slot.shape()) {
    return CheckedTensorError(
        stored,
        absl::StrCat("has shape ", ShapeText(stored.tensor.shape), ", want ",
                     ShapeText(slot.shape()), " by config.json"));
  }
  const std::optional<WeightType> type = WeightTypeOf(stored.tensor.dtype);
  if (!type) {
    return CheckedTensorError(stored,
                              absl::StrCat("has type ", stored.tensor.dtype,
                                           ", want F32, F16 or BF16"));
  }
  *slot.tensor = {stored.tensor.data.data(), *type, slot.rows, slot.cols};
  return absl::OkStatus();
}

// A tied model may also store its output matrix, if it is identical.
absl::Status CheckTiedOutput(const CheckpointFiles& files,
                             const CheckpointTensor& output) {
  const auto embedding = files.tensors.find("model.embed_tokens.weight");
  const SafetensorsTensor& other = embedding->second.tensor;
  if (output.tensor.dtype != other.dtype || output.tensor.data != other.data) {
    return CheckedTensorError(output,
                              "differs from model.embed_tokens.weight, but "
                              "config.json: tie_word_embeddings is true");
  }
  return absl::OkStatus();
}

absl::Status CheckNothingElse(const CheckpointFiles& files,
                              const StoredWeights& weights) {
  std::set<std::string> wanted;
  for (const TensorSlot& slot : weights.slots()) wanted.insert(slot.name);
  for (const auto& [name, stored] : files.tensors) {
    // An unknown tensor means another architecture: ignoring it would give
    // wrong output instead of an error.
    if (wanted.contains(name) || IsRotaryTable(name)) continue;
    if (name == kOutputTensorName && weights.config().tied_embeddings) {
      FORETOKEN_RETURN_IF_ERROR(CheckTiedOutput(files, stored));
      continue;
    }
    return CheckedTensorError(
        stored, absl::StrCat("is unexpected: the ",
                             ModelFamilyName(weights.config().family),
                             " model of config.json has none of that name"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> LoadConfig(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/config.json");
  FORETOKEN_ASSIGN_OR_RETURN(const Json json, ReadModelJson(path));
  FORETOKEN_ASSIGN_OR_RETURN(ModelConfig config,
                             ModelConfig::FromJson(json, path));
  const std::string generation =
      absl::StrCat(directory, "/generation_config.json");
  std::error_code ignored;
  if (std::filesystem::exists(generation, ignored)) {
    FORETOKEN_ASSIGN_OR_RETURN(const Json more, ReadModelJson(generation));
    FORETOKEN_RETURN_IF_ERROR(config.MergeGenerationConfig(more, generation));
  }
  const std::string pooling = absl::StrCat(directory, "/", kPoolingConfig);
  if (std::filesystem::exists(pooling, ignored)) {
    FORETOKEN_ASSIGN_OR_RETURN(const Json more, ReadModelJson(pooling));
    FORETOKEN_ASSIGN_OR_RETURN(config.pooling, ParsePooling(more, pooling));
  }
  return config;
}

absl::StatusOr<std::unique_ptr<ModelWeights>> LoadDirectory(
    const std::string& directory) {
  FORETOKEN_ASSIGN_OR_RETURN(const ModelConfig config, LoadConfig(directory));
  Storage storage;
  FORETOKEN_ASSIGN_OR_RETURN(storage.files, CheckpointFiles::Open(directory));
  auto weights = std::make_unique<StoredWeights>(config);
  for (const TensorSlot& slot : weights->slots()) {
    FORETOKEN_RETURN_IF_ERROR(BindTensor(storage.files, directory, slot));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckNothingElse(storage.files, *weights));
  weights->Adopt(std::move(storage));
  return weights;
}

absl::StatusOr<std::unique_ptr<ModelWeights>> LoadGguf(
    const std::string& path) {
  Storage storage;
  FORETOKEN_ASSIGN_OR_RETURN(storage.gguf, GgufFiles::Open(path));
  FORETOKEN_ASSIGN_OR_RETURN(const ModelConfig config,
                             ReadGgufConfig(storage.gguf));
  auto weights = std::make_unique<StoredWeights>(config);
  FORETOKEN_RETURN_IF_ERROR(
      BindGgufTensors(storage.gguf, config, weights->slots()));
  weights->Adopt(std::move(storage));
  return weights;
}

}  // namespace

WeightBytes BytesOf(const ModelWeights& weights) {
  WeightBytes bytes;
  const auto add = [&](const WeightTensor& tensor) {
    if (!tensor.present()) return;
    bytes.all += tensor.bytes();
    // One row: a norm or a bias.
    if (tensor.rows > 1) bytes.matrices += tensor.bytes();
  };
  add(weights.embedding());
  // A tied matrix is the embedding, counted already.
  if (!weights.config().tied_embeddings) add(weights.output());
  add(weights.final_norm());
  for (const LayerWeights& layer : weights.layers()) {
    for (const WeightTensor* tensor :
         {&layer.attention_norm, &layer.q, &layer.k, &layer.v, &layer.q_bias,
          &layer.k_bias, &layer.v_bias, &layer.q_norm, &layer.k_norm, &layer.o,
          &layer.o_bias, &layer.ffn_norm, &layer.gate, &layer.up,
          &layer.gate_bias, &layer.up_bias, &layer.down, &layer.down_bias}) {
      add(*tensor);
    }
  }
  return bytes;
}

void WeightTensor::CopyTo(int64_t begin, absl::Span<float> out) const {
  const int64_t count = static_cast<int64_t>(out.size());
  FORETOKEN_CHECK(present() && begin >= 0 && count <= size() - begin);
  if (paired_rows == 0) return CopyStored(begin, out);
  // One row, or one element of a bias, after the other.
  // A bias has one row, in which its elements are permuted like rows.
  const int64_t width = rows > 1 ? cols : 1;
  while (!out.empty()) {
    const int64_t stored = StoredIndex(begin / width);
    const int64_t in_row = begin % width;
    const int64_t part =
        std::min(width - in_row, static_cast<int64_t>(out.size()));
    CopyStored(stored * width + in_row, out.first(part));
    out.remove_prefix(part);
    begin += part;
  }
}

int64_t WeightTensor::StoredIndex(int64_t row) const {
  if (paired_rows == 0) return row;
  const int64_t in_head = row % paired_rows;
  const int64_t half = paired_rows / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

void WeightTensor::CopyStored(int64_t begin, absl::Span<float> out) const {
  const GgufTensorType& format = WeightTypeFormat(type);
  constexpr size_t kMaxBlock = 256;
  std::array<float, kMaxBlock> block;
  while (!out.empty()) {
    const uint8_t* from = data + begin / format.block * format.block_bytes;
    const int64_t in_block = begin % format.block;
    const int64_t left = static_cast<int64_t>(out.size());
    int64_t part = left / format.block * format.block;
    // Whole blocks straight into the output; the common case.
    if (in_block == 0 && part > 0) {
      ConvertToFloat32(type, from, out.first(part));
    } else {  // a range may begin or end inside a block
      part = std::min(format.block - in_block, left);
      ConvertToFloat32(type, from, absl::MakeSpan(block.data(), format.block));
      std::copy_n(block.data() + in_block, part, out.data());
    }
    out.remove_prefix(part);
    begin += part;
  }
}

absl::StatusOr<std::unique_ptr<ModelWeights>> ModelWeights::Load(
    const std::string& path) {
  FORETOKEN_RETURN_IF_ERROR(CheckModelPath(path));
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? LoadDirectory(path)
                                                      : LoadGguf(path);
}

absl::StatusOr<std::unique_ptr<ModelWeights>> ModelWeights::Random(
    const ModelConfig& config, WeightType type, uint64_t seed) {
  FORETOKEN_RETURN_IF_ERROR(config.Validate());
  auto weights = std::make_unique<StoredWeights>(config);
  constexpr int64_t kAlignment = 64;  // a cache line
  const int64_t block = WeightTypeFormat(type).block;
  const auto type_of = [&](const TensorSlot& slot) {
    // Vectors are never quantised: their length need not be whole blocks.
    return slot.is_vector() && block > 1 ? WeightType::kFloat32 : type;
  };
  int64_t total = 0;
  for (const TensorSlot& slot : weights->slots()) {
    if (!slot.is_vector() && slot.cols % block != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "random weights: ", slot.name, " has rows of ", slot.cols,
          ", want a multiple of ", block, " for ", WeightTypeName(type)));
    }
    const int64_t bytes = WeightTypeBytes(type_of(slot), slot.rows * slot.cols);
    total += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    // Inside the loop, before the sum can overflow.
    if (total > kMaxRandomBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("random weights: more than ", kMaxRandomBytes,
                       " bytes for this shape"));
    }
  }
  Storage storage;
  // kWhole: a shape that does not fit is refused here, not killed while filled.
  FORETOKEN_ASSIGN_OR_RETURN(
      storage.memory, HugeBuffer::Allocate(total, HugeBuffer::Use::kWhole));
  int64_t offset = 0;
  for (const TensorSlot& slot : weights->slots()) {
    *slot.tensor = {storage.memory.data() + offset, type_of(slot), slot.rows,
                    slot.cols};
    offset += (slot.tensor->bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const auto fill = [&](int64_t i) {
    const TensorSlot& slot = weights->slots()[i];
    // Slots expose const data; the memory itself is ours to write.
    uint8_t* data =
        storage.memory.data() + (slot.tensor->data - storage.memory.data());
    // By tensor and seed alone, so threads may fill in any order.
    FillRandomTensor(slot, config, type_of(slot),
                     MixRandom(seed, static_cast<uint64_t>(i)), data);
  };
  // Use threads only if filling takes seconds. The values do not depend on
  // them.
  constexpr int64_t kManyBytes = int64_t{256} << 20;
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  ThreadPool pool(total < kManyBytes
                      ? 1
                      : std::clamp(processors, 1, ThreadPool::kMaxThreads));
  pool.ParallelFor(static_cast<int64_t>(weights->slots().size()), fill);
  weights->Adopt(std::move(storage), seed);
  return weights;
}

}  // namespace foretoken
