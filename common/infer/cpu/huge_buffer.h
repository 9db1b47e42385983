// Zeroed memory straight from the operating system, on huge pages where it
// gives them: streaming a gigabyte of weights through 4 KiB pages would spend
// its time in the page table. Pages are touched only when first written.
#ifndef FORETOKEN_COMMON_INFER_CPU_HUGE_BUFFER_H_
#define FORETOKEN_COMMON_INFER_CPU_HUGE_BUFFER_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace foretoken {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept { *this = std::move(other); }
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }

  // At least `bytes`, 64-byte aligned. ResourceExhausted names the size.
  static absl::StatusOr<HugeBuffer> Allocate(int64_t bytes);

  uint8_t* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  uint8_t* data_ = nullptr;
  int64_t mapped_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_HUGE_BUFFER_H_
