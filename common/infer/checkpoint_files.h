// The tensors of a Hugging Face checkpoint directory: model.safetensors, or
// the shards that model.safetensors.index.json lists, memory-mapped.
#ifndef FORETOKEN_COMMON_INFER_CHECKPOINT_FILES_H_
#define FORETOKEN_COMMON_INFER_CHECKPOINT_FILES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/infer/safetensors.h"

namespace foretoken {

// A tensor and the path of the file it lies in.
struct CheckpointTensor {
  SafetensorsTensor tensor;
  std::string file;
};

// Thread-compatible. Tensors borrow the maps.
struct CheckpointFiles {
  std::vector<MappedFile> maps;
  std::map<std::string, CheckpointTensor> tensors;  // by name

  // Where both forms are there, model.safetensors is taken. NotFound if
  // neither is; InvalidArgument names file and tensor: an index must agree
  // with its shards exactly, and may name only files beside it.
  static absl::StatusOr<CheckpointFiles> Open(const std::string& directory);
};

// Shard file name by tensor name, out of an index. `file` is for messages.
absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(
    const Json& json, const std::string& file);

// Larger JSON files than this are no model's.
inline constexpr uint64_t kMaxModelJsonBytes = uint64_t{32} << 20;
inline constexpr size_t kMaxShards = 1024;

// Reads and parses a JSON file of at most kMaxModelJsonBytes.
absl::StatusOr<Json> ReadModelJson(const std::string& path);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CHECKPOINT_FILES_H_
