// Any bytes as a safetensors file: no crash, every tensor within the bytes and
// of the size that its shape says, one after the other without a gap.
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/infer/safetensors.h"

namespace {

// As a checker of its own: nothing here is taken from the parser's tables.
uint64_t ElementBytes(const std::string& dtype) {
  if (dtype == "BOOL" || dtype.rfind("F8_", 0) == 0) return 1;
  const std::string digits = dtype.substr(dtype.find_first_of("0123456789"));
  return std::stoull(digits) / 8;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const uint8_t> bytes(data, size);
  const auto tensors = foretoken::ParseSafetensors(bytes, "fuzz");
  if (!tensors.ok()) {
    FORETOKEN_CHECK(tensors.status().message().size() < 4096);
    return 0;
  }
  uint64_t total = 0;
  const uint8_t* next = nullptr;
  for (const foretoken::SafetensorsTensor& tensor : *tensors) {
    uint64_t want = ElementBytes(tensor.dtype);
    for (const int64_t dim : tensor.shape) want *= static_cast<uint64_t>(dim);
    FORETOKEN_CHECK(tensor.data.size() == want);
    FORETOKEN_CHECK(tensor.data.data() >= data);
    FORETOKEN_CHECK(tensor.data.data() + want <= data + size);
    FORETOKEN_CHECK(next == nullptr || tensor.data.data() == next);
    next = tensor.data.data() + want;
    total += want;
  }
  FORETOKEN_CHECK(total <= size);
  if (next != nullptr) FORETOKEN_CHECK(next == data + size);
  return 0;
}
