// Element types of the KV cache, and the bytes that they take.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CPU_KV_TYPE_H_
#define FORETOKEN_COMMON_INFER_CPU_KV_TYPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/infer/cpu/ops.h"

namespace foretoken {

// kInt8: the elements of a key or value of one head, in blocks of
// kKvScaleBlock, are quantised as Int8Blocks are (quant_layout.h), each block
// with an fp32 scale.
enum class KvType : uint8_t { kBFloat16, kFloat32, kInt8 };

// By KvType: the names in flags and numerics fingerprints.
inline constexpr const char* kKvTypeNames[] = {"bf16", "fp32", "q8_0"};

// Values of --kv-type: "auto", then every type.
std::vector<std::string> KvTypeChoices();

// A value of --kv-type; nullopt for "auto". InvalidArgument for any other text.
absl::StatusOr<std::optional<KvType>> ParseKvType(absl::string_view text);

// One head of one token: `n` elements (head_dim padded to kCpuPad), then, in
// kInt8, the scales of its blocks, the last of which may be half a block.
struct KvLayout {
  KvType type = KvType::kBFloat16;
  int64_t n = 0;

  int64_t element_bytes() const {
    return type == KvType::kInt8 ? 1 : type == KvType::kBFloat16 ? 2 : 4;
  }
  int64_t scales() const {
    return type == KvType::kInt8 ? (n + kKvScaleBlock - 1) / kKvScaleBlock : 0;
  }
  int64_t plain_bytes() const { return n * element_bytes(); }
  int64_t head_bytes() const {
    return plain_bytes() + scales() * static_cast<int64_t>(sizeof(float));
  }
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_KV_TYPE_H_
