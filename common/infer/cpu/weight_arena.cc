#include "common/infer/cpu/weight_arena.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// Address space only: pages are touched as matrices are packed.
constexpr int64_t kMapping = int64_t{256} << 20;
constexpr int64_t kAlignment = 64;

}  // namespace

absl::StatusOr<uint8_t*> WeightArena::Allocate(int64_t bytes) {
  const int64_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (padded > left_) {
    // A matrix larger than a mapping gets one of its own; the rest of the old
    // mapping is left unused.
    const int64_t size = std::max(kMapping, padded);
    FORETOKEN_ASSIGN_OR_RETURN(HugeBuffer mapping, HugeBuffer::Allocate(size));
    next_ = mapping.data();
    left_ = size;
    mappings_.push_back(std::move(mapping));
  }
  uint8_t* const data = next_;
  next_ += padded;
  left_ -= padded;
  return data;
}

}  // namespace foretoken
