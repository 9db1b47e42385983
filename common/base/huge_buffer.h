// Zeroed memory straight from the operating system, on huge pages if available:
// streaming a gigabyte of weights through 4 KiB pages would spend its time in
// the page table. Pages are touched only when first written.
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_BASE_HUGE_BUFFER_H_
#define FORETOKEN_COMMON_BASE_HUGE_BUFFER_H_

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

  // kLazy: may exceed the available memory, for a cache that fills up as it is
  // used. kWhole: refused at once if the kernel can tell that it will not fit.
  enum class Use { kLazy, kWhole };

  // At least `bytes`, page-aligned. ResourceExhausted names the size.
  static absl::StatusOr<HugeBuffer> Allocate(int64_t bytes,
                                             Use use = Use::kLazy);

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

#endif  // FORETOKEN_COMMON_BASE_HUGE_BUFFER_H_
