// Texts and integers as bytes, in a byte order independent of the machine.
// Thread-safe: stateless functions.
#ifndef FORETOKEN_COMMON_BASE_BYTES_H_
#define FORETOKEN_COMMON_BASE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace foretoken {

inline absl::Span<const uint8_t> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// `T`: an integer or an enumeration; its size decides the number of bytes.
template <typename T>
void AppendLittleEndian(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
void AppendBigEndian(T value, std::string& out) {
  for (size_t i = sizeof(T); i-- > 0;) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

// The integer encoded in at most 8 bytes.
inline uint64_t FromLittleEndian(absl::Span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

inline uint64_t FromBigEndian(absl::Span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (const uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_BYTES_H_
