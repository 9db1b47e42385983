// Tensors of a Hugging Face checkpoint directory, memory-mapped:
// model.safetensors, or the shards listed in model.safetensors.index.json.
#ifndef FORETOKEN_COMMON_INFER_CHECKPOINT_FILES_H_
#define FORETOKEN_COMMON_INFER_CHECKPOINT_FILES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json_fwd.h"
#include "common/base/mapped_file.h"
#include "common/infer/safetensors.h"

namespace foretoken {

// A tensor and the path of the file that contains it.
struct CheckpointTensor {
  SafetensorsTensor tensor;
  std::string file;
};

// Thread-compatible. Tensors borrow the maps.
struct CheckpointFiles {
  std::vector<MappedFile> maps;
  std::map<std::string, CheckpointTensor> tensors;  // by name

  // model.safetensors takes precedence if both forms exist; NotFound if neither
  // does. InvalidArgument names file and tensor: an index must agree exactly
  // with its shards, and may name only files in its own directory.
  static absl::StatusOr<CheckpointFiles> Open(const std::string& directory);
};

// Parses an index: shard file name by tensor name. `file` is used in messages.
absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(
    const Json& json, const std::string& file);

// Larger JSON files cannot belong to a model.
inline constexpr uint64_t kMaxModelJsonBytes = uint64_t{32} << 20;
inline constexpr size_t kMaxShards = 1024;

// Reads and parses a JSON file of at most kMaxModelJsonBytes.
absl::StatusOr<Json> ReadModelJson(const std::string& path);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CHECKPOINT_FILES_H_
