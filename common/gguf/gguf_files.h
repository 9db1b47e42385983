// A GGUF model on disk: one file, or all splits of one, memory-mapped.
#ifndef FORETOKEN_COMMON_GGUF_GGUF_FILES_H_
#define FORETOKEN_COMMON_GGUF_GGUF_FILES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mapped_file.h"
#include "common/gguf/gguf.h"

namespace foretoken {

// Thread-compatible. Metadata and tensors borrow the maps.
struct GgufFiles {
  // A tensor and the path of the file it lies in.
  struct Tensor {
    GgufTensor tensor;
    std::string file;
  };

  std::vector<MappedFile> maps;
  GgufMetadata metadata;                  // of the first file
  std::map<std::string, Tensor> tensors;  // by name

  // `path` is a single file or the first split, NAME-00001-of-0000N.gguf, whose
  // others must lie beside it. Errors as ParseGguf's; NotFound for a missing
  // file; a split that says another number or count than its name is refused.
  static absl::StatusOr<GgufFiles> Open(const std::string& path);
};

inline constexpr int64_t kMaxGgufSplits = 1024;

// True if the file at `path` begins as a GGUF file does.
bool IsGgufFile(const std::string& path);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GGUF_GGUF_FILES_H_
