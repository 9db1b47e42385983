// Any bytes as a GGUF file: no crash, every tensor within the bytes and of the
// size that its shape and type say, none over another, every key readable.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/check.h"
#include "common/gguf/gguf.h"
#include "common/gguf/tensor_types.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto gguf =
      foretoken::ParseGguf(absl::MakeConstSpan(data, size), "fuzz");
  if (!gguf.ok()) {
    FORETOKEN_CHECK(gguf.status().message().size() < 4096);
    return 0;
  }
  std::vector<absl::Span<const uint8_t>> spans;
  for (const foretoken::GgufTensor& tensor : gguf->tensors) {
    const foretoken::GgufTensorType* type =
        foretoken::FindGgufTensorType(tensor.type);
    FORETOKEN_CHECK(type != nullptr);
    int64_t elements = 1;
    for (const int64_t dim : tensor.shape) elements *= dim;
    FORETOKEN_CHECK(static_cast<int64_t>(tensor.data.size()) ==
                    elements / type->block * type->block_bytes);
    FORETOKEN_CHECK(tensor.data.data() >= data);
    FORETOKEN_CHECK(tensor.data.data() + tensor.data.size() <= data + size);
    spans.push_back(tensor.data);
  }
  std::sort(spans.begin(), spans.end(),
            [](const auto& a, const auto& b) { return a.data() < b.data(); });
  for (size_t i = 1; i < spans.size(); ++i) {
    FORETOKEN_CHECK(spans[i - 1].data() + spans[i - 1].size() <=
                    spans[i].data());
  }
  constexpr uint64_t kMost = 1 << 20;
  for (const auto& [key, value] : gguf->metadata.values()) {
    FORETOKEN_CHECK(value.Text().size() < 1024);
    (void)gguf->metadata.Integer(key, INT64_MIN, INT64_MAX);
    (void)gguf->metadata.Number(key, -1e300, 1e300);
    (void)gguf->metadata.Bool(key);
    (void)gguf->metadata.Strings(key, kMost);
    (void)gguf->metadata.Integers(key, kMost);
    (void)gguf->metadata.Numbers(key, kMost);
  }
  return 0;
}
