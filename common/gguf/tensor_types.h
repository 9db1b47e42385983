// The tensor types of GGUF files: their numbers, names and block sizes.
//
// Source: ggml, ggml.h (enum ggml_type) and ggml-common.h (block layouts).
// Thread-safe.
#ifndef FORETOKEN_COMMON_GGUF_TENSOR_TYPES_H_
#define FORETOKEN_COMMON_GGUF_TENSOR_TYPES_H_

#include <cstdint>
#include <string>

namespace foretoken {

// A row is a whole number of blocks.
struct GgufTensorType {
  uint32_t number;
  const char* name;  // "Q4_K"
  int64_t block;     // elements of a block
  int64_t block_bytes;
};

// Nullptr for a number that ggml does not define.
const GgufTensorType* FindGgufTensorType(uint32_t number);
const GgufTensorType* FindGgufTensorType(const std::string& name);

// The name, or "type 77".
std::string GgufTensorTypeName(uint32_t number);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GGUF_TENSOR_TYPES_H_
