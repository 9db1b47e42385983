#include "common/infer/checkpoint_files.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

bool Exists(const std::string& path) {
  std::error_code ignored;
  // Errors count as "not there": opening the file will tell more.
  return std::filesystem::exists(path, ignored);
}

// The index is part of a download: it must not point outside its directory.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

absl::Status AddFile(const std::string& path, CheckpointFiles& files) {
  FORETOKEN_ASSIGN_OR_RETURN(MappedFile map, MappedFile::Open(path));
  // Shapes and offsets are checked against the file's size by the parser.
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<SafetensorsTensor> tensors,
                             ParseSafetensors(map.bytes(), path));
  // A tensor in two shards would make the model depend on the order of files.
  for (SafetensorsTensor& tensor : tensors) {
    const std::string name = tensor.name;
    const auto [place, added] = files.tensors.try_emplace(
        name, CheckpointTensor{std::move(tensor), path});
    if (!added) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor ", absl::CEscape(name), " is also in ",
                       place->second.file));
    }
  }
  files.maps.push_back(std::move(map));
  return absl::OkStatus();
}

absl::StatusOr<CheckpointFiles> OpenShards(const std::string& directory) {
  const std::string index_path = absl::StrCat(directory, "/", kIndexFile);
  FORETOKEN_ASSIGN_OR_RETURN(const Json json, ReadModelJson(index_path));
  FORETOKEN_ASSIGN_OR_RETURN(const auto shard_of,
                             ParseShardIndex(json, index_path));
  // A map from tensors to shards lists each shard many times; open it once.
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);

  CheckpointFiles files;
  for (const std::string& shard : shards) {
    FORETOKEN_RETURN_IF_ERROR(
        AddFile(absl::StrCat(directory, "/", shard), files));
  }
  // Index and shards must agree in both directions: a tensor that is missing,
  // misplaced or unlisted means a damaged or mixed-up download.
  for (const auto& [name, shard] : shard_of) {
    const auto found = files.tensors.find(name);
    const std::string path = absl::StrCat(directory, "/", shard);
    if (found == files.tensors.end() || found->second.file != path) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor ", absl::CEscape(name),
                       " is missing, but ", kIndexFile, " puts it here"));
    }
  }
  for (const auto& [name, tensor] : files.tensors) {
    if (!shard_of.contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.file, ": tensor ", absl::CEscape(name),
                       " is not listed in ", kIndexFile));
    }
  }
  return files;
}

}  // namespace

absl::StatusOr<Json> ReadModelJson(const std::string& path) {
  // Bounded: a config is read into memory whole.
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text,
                             ReadFile(path, kMaxModelJsonBytes));
  absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Annotate(json.status(), path);
  if (!json->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a JSON object"));
  }
  return json;
}

absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(
    const Json& json, const std::string& file) {
  const auto weight_map =
      json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || weight_map == json.end() ||
      !weight_map->is_object() || weight_map->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": weight_map is missing or empty"));
  }
  if (weight_map->size() > kMaxSafetensorsTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": weight_map has ", weight_map->size(),
                     " entries, want at most ", kMaxSafetensorsTensors));
  }
  std::map<std::string, std::string> shard_of;
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map->items()) {
    if (!shard.is_string() ||
        !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": weight_map of tensor ", absl::CEscape(name),
                       " is not the name of a file beside it"));
    }
    shards.insert(shard.get<std::string>());
    shard_of[name] = shard.get<std::string>();
  }
  // Each shard is a mapping, of which a process has a limited number.
  if (shards.size() > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": ", shards.size(), " shards, want at most ", kMaxShards));
  }
  return shard_of;
}

absl::StatusOr<CheckpointFiles> CheckpointFiles::Open(
    const std::string& directory) {
  // A single file wins over an index beside it.
  const std::string single = absl::StrCat(directory, "/", kSingleFile);
  if (Exists(single)) {
    CheckpointFiles files;
    FORETOKEN_RETURN_IF_ERROR(AddFile(single, files));
    return files;
  }
  if (Exists(absl::StrCat(directory, "/", kIndexFile))) {
    return OpenShards(directory);
  }
  return absl::NotFoundError(absl::StrCat(directory, ": neither ", kSingleFile,
                                          " nor ", kIndexFile, " is there"));
}

}  // namespace foretoken
