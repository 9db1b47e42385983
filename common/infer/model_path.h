// The path of a model: a GGUF file or a Hugging Face directory. What is there,
// what it is called, and whether it can be served, told before anything slow
// begins and in the same words everywhere.
//
// Thread-safe: functions without state.
#ifndef FORETOKEN_COMMON_INFER_MODEL_PATH_H_
#define FORETOKEN_COMMON_INFER_MODEL_PATH_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace foretoken {

// NotFound: "PATH: no such file or directory", or a directory without a
// config.json. InvalidArgument: "PATH: not a GGUF file or model directory". A
// path that cannot be read gives the system's reason.
absl::Status CheckModelPath(const std::string& path);

// CheckModelPath, and whether the model is one that can be loaded: its
// configuration, and the names, types and shapes of its tensors. Of weights it
// reads only an output matrix that should equal the embeddings. A model with
// features that are not supported is Unimplemented: "model not supported: FILE:
// KEY is VALUE, want ...".
absl::Status CheckModel(const std::string& path);

// The name that the model gives itself: general.name of a GGUF file. Without
// one, the file's name without .gguf and the number of its split; that of the
// directory. 1 to kMaxModelNameBytes bytes of UTF-8 without control characters
// and slashes. "model" for a path that has no name.
std::string ModelNameOf(const std::string& path);

inline constexpr size_t kMaxModelNameBytes = 128;

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_MODEL_PATH_H_
