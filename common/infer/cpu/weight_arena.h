// WeightArena: the memory of a model's packed matrices.
//
// They lie one after the other in a few large mappings on huge pages: a small
// matrix of its own mapping would be read through 4 KiB pages, and a large one
// would leave half a huge page empty.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_INFER_CPU_WEIGHT_ARENA_H_
#define FORETOKEN_COMMON_INFER_CPU_WEIGHT_ARENA_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/huge_buffer.h"

namespace foretoken {

class WeightArena {
 public:
  // Zeroed bytes, 64-byte aligned, that live as long as the arena (its moves
  // included). ResourceExhausted names a size that there is no memory for.
  absl::StatusOr<uint8_t*> Allocate(int64_t bytes);

 private:
  std::vector<HugeBuffer> mappings_;
  uint8_t* next_ = nullptr;  // in the last mapping
  int64_t left_ = 0;         // bytes
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_WEIGHT_ARENA_H_
