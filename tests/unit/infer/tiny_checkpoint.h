// A complete checkpoint of some kilobytes, to be written as it is or bent.
#ifndef FORETOKEN_TESTS_UNIT_INFER_TINY_CHECKPOINT_H_
#define FORETOKEN_TESTS_UNIT_INFER_TINY_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/infer/safetensors.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {

struct TinyTensor {
  std::string name;
  WeightType type = WeightType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> data;
};

// A Llama of d_model 8, 2 layers, 2 heads, d_ff 12, vocabulary 10, context 32.
Json TinyConfigJson();

class TinyCheckpoint {
 public:
  // TinyConfigJson() with `changes` merged in (null removes a field), and every
  // tensor that it asks for, element i being a small number of its own.
  explicit TinyCheckpoint(const Json& changes = Json::object());

  Json config;
  std::vector<TinyTensor> tensors;

  TinyTensor& Find(const std::string& name);
  void Remove(const std::string& name);
  // The bytes of one safetensors file with tensors [begin, end).
  std::string Serialize(size_t begin, size_t end) const;
  // config.json and model.safetensors.
  void Write(const TempDir& dir) const;
  // config.json and `shards` files with their index, whose weight_map is
  // returned.
  Json WriteShards(const TempDir& dir, int shards) const;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_TINY_CHECKPOINT_H_
