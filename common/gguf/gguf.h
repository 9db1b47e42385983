// The GGUF container, versions 2 and 3: a header, typed metadata by key, a
// table of tensors, and their data.
//
// The parser takes bytes, not files, and trusts none of them: every count,
// length and offset is checked against the bytes that are left before it is
// used, nothing is allocated by a number of the file, and tensors must lie
// inside the data section without overlap.
//
// Format: github.com/ggml-org/ggml, docs/gguf.md. Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_GGUF_GGUF_H_
#define FORETOKEN_COMMON_GGUF_GGUF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/gguf/gguf_metadata.h"

namespace foretoken {

struct GgufTensor {
  std::string name;
  uint32_t type = 0;               // a number of tensor_types.h, known there
  std::vector<int64_t> shape;      // slowest dimension first: [rows, cols]
  absl::Span<const uint8_t> data;  // borrows the bytes parsed
};

struct Gguf {
  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the file's order
};

// Larger counts and names are refused.
inline constexpr uint64_t kMaxGgufTensors = 100'000;
inline constexpr uint64_t kMaxGgufKeys = 100'000;
inline constexpr uint64_t kMaxGgufKeyBytes = 65'535;
inline constexpr uint64_t kMaxGgufTensorName = 512;

// True if the bytes begin as a GGUF file does.
bool IsGguf(absl::Span<const uint8_t> bytes);

// InvalidArgument names `file`, the key or tensor, what was found and what was
// wanted; Unimplemented for version 1, big-endian files, arrays of arrays and
// tensor types that ggml does not define.
absl::StatusOr<Gguf> ParseGguf(absl::Span<const uint8_t> bytes,
                               const std::string& file);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GGUF_GGUF_H_
