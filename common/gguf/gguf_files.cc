#include "common/gguf/gguf_files.h"

#include <sys/stat.h>

#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

std::string SplitSuffix(int64_t number, int64_t count) {
  return absl::StrFormat("-%05d-of-%05d.gguf", number + 1, count);
}

// The split's own number and the count of all; {0, 1} for a single file.
struct Split {
  int64_t number = 0;
  int64_t count = 1;
};

absl::StatusOr<Split> ReadSplit(const GgufMetadata& metadata) {
  Split split;
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::optional<int64_t> count,
      metadata.Integer("split.count", 0, kMaxGgufSplits));
  // Tools write a count of 0 into files that were never split.
  if (!count || *count <= 1) return split;
  split.count = *count;
  FORETOKEN_ASSIGN_OR_RETURN(
      split.number, metadata.RequiredInteger("split.no", 0, *count - 1));
  return split;
}

absl::StatusOr<Split> AddFile(const std::string& path, GgufFiles& files) {
  FORETOKEN_ASSIGN_OR_RETURN(MappedFile map, MappedFile::Open(path));
  FORETOKEN_ASSIGN_OR_RETURN(Gguf gguf, ParseGguf(map.bytes(), path));
  for (GgufTensor& tensor : gguf.tensors) {
    const std::string name = tensor.name;
    const auto [place, added] = files.tensors.try_emplace(
        name, GgufFiles::Tensor{std::move(tensor), path});
    if (!added) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor ", PrintableGgufText(name),
                       " is also in ", place->second.file));
    }
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Split split, ReadSplit(gguf.metadata));
  // The first split has the model's metadata; the others only their split keys.
  // A view into the mapping, which moves along with `maps`: the mapped address
  // stays.
  if (files.maps.empty()) files.metadata = std::move(gguf.metadata);
  files.maps.push_back(std::move(map));
  return split;
}

}  // namespace

absl::StatusOr<GgufFiles> GgufFiles::Open(const std::string& path) {
  GgufFiles files;
  FORETOKEN_ASSIGN_OR_RETURN(const Split first, AddFile(path, files));
  if (first.count == 1) return files;
  const std::string suffix = SplitSuffix(0, first.count);
  // The other names follow from the first one's suffix, which llama.cpp's
  // gguf-split writes.
  if (first.number != 0 || !absl::EndsWith(path, suffix)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is split ", first.number + 1, " of ", first.count,
                     ", want the first one, whose name ends in ", suffix));
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  for (int64_t i = 1; i < first.count; ++i) {
    const std::string file = stem + SplitSuffix(i, first.count);
    FORETOKEN_ASSIGN_OR_RETURN(const Split split, AddFile(file, files));
    // A split of another model could otherwise be loaded among these.
    if (split.number != i || split.count != first.count) {
      return absl::InvalidArgumentError(absl::StrCat(
          file, ": split.no is ", split.number, " and split.count ",
          split.count, ", want ", i, " and ", first.count));
    }
  }
  // A split that lacks tensors would otherwise only fail when a tensor is
  // looked up.
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::optional<int64_t> total,
      files.metadata.Integer("split.tensors.count", 0, INT32_MAX));
  if (total && *total != static_cast<int64_t>(files.tensors.size())) {
    return files.metadata.Invalid(
        "split.tensors.count",
        absl::StrCat(files.tensors.size(), ", as there are in all splits"));
  }
  return files;
}

bool IsGgufFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  // Four bytes decide; the rest of the file may be terabytes.
  std::ifstream stream(path, std::ios::binary);
  uint8_t magic[4] = {};
  stream.read(reinterpret_cast<char*>(magic), sizeof(magic));
  return stream.gcount() == sizeof(magic) && IsGguf(magic);
}

}  // namespace foretoken
