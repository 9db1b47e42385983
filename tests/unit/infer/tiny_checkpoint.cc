#include "tests/unit/infer/tiny_checkpoint.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/infer/tensor_layout.h"

namespace foretoken::testing {

Json TinyConfigJson() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 8},
          {"intermediate_size", 12},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"vocab_size", 10},
          {"max_position_embeddings", 32},
          {"rms_norm_eps", 1e-5},
          {"bos_token_id", 1},
          {"eos_token_id", 2}};
}

TinyCheckpoint::TinyCheckpoint(const Json& changes) : config(TinyConfigJson()) {
  config.merge_patch(changes);
  const auto parsed = ModelConfig::FromJson(config, "config.json");
  FORETOKEN_CHECK(parsed.ok());
  ModelTensors unused;
  int number = 0;
  for (const TensorSlot& slot : LayOutTensors(*parsed, unused)) {
    TinyTensor tensor{slot.name, WeightType::kFloat32, slot.shape(), {}};
    tensor.data.resize(static_cast<size_t>(slot.rows * slot.cols * 4));
    for (int64_t i = 0; i < slot.rows * slot.cols; ++i) {
      const float value = static_cast<float>(++number) / 1024.0f;
      std::memcpy(tensor.data.data() + 4 * i, &value, sizeof(value));
    }
    tensors.push_back(std::move(tensor));
  }
}

TinyTensor& TinyCheckpoint::Find(const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(),
                   [&name](const TinyTensor& t) { return t.name == name; });
  FORETOKEN_CHECK(found != tensors.end());
  return *found;
}

void TinyCheckpoint::Remove(const std::string& name) {
  tensors.erase(tensors.begin() + (&Find(name) - tensors.data()));
}

std::string TinyCheckpoint::Serialize(size_t begin, size_t end) const {
  std::vector<SafetensorsSource> sources;
  for (size_t i = begin; i < end; ++i) {
    const TinyTensor& tensor = tensors[i];
    sources.push_back({tensor.name, tensor.type, tensor.shape, tensor.data});
  }
  return SerializeSafetensors(sources);
}

void TinyCheckpoint::Write(const TempDir& dir) const {
  dir.Write("config.json", DumpJson(config));
  dir.Write("model.safetensors", Serialize(0, tensors.size()));
}

Json TinyCheckpoint::WriteShards(const TempDir& dir, int shards) const {
  dir.Write("config.json", DumpJson(config));
  Json weight_map = Json::object();
  const size_t count = static_cast<size_t>(shards);
  for (size_t shard = 0; shard < count; ++shard) {
    const size_t begin = tensors.size() * shard / count;
    const size_t end = tensors.size() * (shard + 1) / count;
    const std::string name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, count);
    dir.Write(name, Serialize(begin, end));
    for (size_t i = begin; i < end; ++i) weight_map[tensors[i].name] = name;
  }
  dir.Write(
      "model.safetensors.index.json",
      DumpJson({{"metadata", Json::object()}, {"weight_map", weight_map}}));
  return weight_map;
}

}  // namespace foretoken::testing
