#include "common/base/huge_buffer.h"

#include <sys/mman.h>

#include <limits>

#include "absl/strings/str_cat.h"

namespace foretoken {

namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;
}  // namespace

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

absl::StatusOr<HugeBuffer> HugeBuffer::Allocate(int64_t bytes, Use use) {
  HugeBuffer buffer;
  if (bytes <= 0) return buffer;
  const bool large = bytes >= kHugePage;
  // Whole huge pages, or the last part of a large buffer would be mapped in
  // small ones.
  const int64_t unit = large ? kHugePage : 4096;
  void* data = MAP_FAILED;
  // The rounding below would overflow.
  if (bytes <= std::numeric_limits<int64_t>::max() - unit) {
    buffer.mapped_ = (bytes + unit - 1) / unit * unit;
    // Without a reservation a large buffer that is touched only in part counts
    // as what it uses.
    const int lazy = use == Use::kLazy ? MAP_NORESERVE : 0;
    data = mmap(nullptr, buffer.mapped_, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | lazy, -1, 0);
  }
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot get ", bytes, " bytes of memory"));
  }
  buffer.data_ = static_cast<uint8_t*>(data);
  if (large) madvise(data, buffer.mapped_, MADV_HUGEPAGE);  // a hint
  return buffer;
}

}  // namespace foretoken
