// GgufWriter: the header and metadata of a GGUF file (version 3).
//
// The caller adds keys and tensors, writes Header() and then each tensor's
// data, every one padded with zeros to kAlignment, in the order of the calls.
// A key is added once. Owned by one thread.
#ifndef FORETOKEN_COMMON_GGUF_GGUF_WRITER_H_
#define FORETOKEN_COMMON_GGUF_GGUF_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/gguf/gguf_metadata.h"

namespace foretoken {

class GgufWriter {
 public:
  static constexpr uint64_t kAlignment = 32;

  void Uint32(absl::string_view key, uint32_t value);
  void Float32(absl::string_view key, float value);
  void Bool(absl::string_view key, bool value);
  void String(absl::string_view key, absl::string_view value);
  void Strings(absl::string_view key, absl::Span<const std::string> values);
  void Bytes(absl::string_view key, absl::string_view values);
  void Int32s(absl::string_view key, absl::Span<const int32_t> values);
  void Float32s(absl::string_view key, absl::Span<const float> values);
  // True if the key was added.
  bool Has(absl::string_view key) const { return keys_.contains(key); }
  // The value of a key of an integer type, if it was added.
  std::optional<int64_t> Integer(absl::string_view key) const;
  // A value of another file as it is.
  void Copy(absl::string_view key, const GgufValue& value);

  // `shape` slowest dimension first; rows are whole blocks of the type.
  void Tensor(absl::string_view name, uint32_t type,
              absl::Span<const int64_t> shape);

  // Bytes of the last tensor added, without padding.
  uint64_t tensor_bytes() const { return tensor_bytes_; }

  // Everything before the data, padded.
  std::string Header() const;

  // Zeros that follow `bytes` bytes of data.
  static std::string Padding(uint64_t bytes) {
    return std::string((kAlignment - bytes % kAlignment) % kAlignment, '\0');
  }

 private:
  void Key(absl::string_view key, GgufType type);
  void Array(absl::string_view key, GgufType element, uint64_t count);

  std::string metadata_;
  std::string table_;
  // Where a key's value begins in metadata_, and its type.
  struct Place {
    size_t begin = 0;
    GgufType type = GgufType::kUint8;
  };
  absl::flat_hash_map<std::string, Place> keys_;
  uint64_t tensors_ = 0;
  uint64_t tensor_bytes_ = 0;
  uint64_t data_bytes_ = 0;  // padded
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GGUF_GGUF_WRITER_H_
