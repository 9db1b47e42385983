// ByteSet: a set of byte values.
#ifndef FORETOKEN_COMMON_GRAMMAR_BYTE_SET_H_
#define FORETOKEN_COMMON_GRAMMAR_BYTE_SET_H_

#include <array>
#include <cstdint>
#include <utility>

namespace foretoken::grammar {

class ByteSet {
 public:
  constexpr ByteSet() = default;

  // The bytes first..last, both included.
  static constexpr ByteSet Range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (int byte = first; byte <= last; ++byte) set.Add(byte);
    return set;
  }
  static constexpr ByteSet All() { return Range(0, 255); }

  constexpr void Add(uint8_t byte) {
    words_[byte >> 6] |= uint64_t{1} << (byte & 63);
  }
  constexpr bool Contains(uint8_t byte) const {
    return (words_[byte >> 6] >> (byte & 63)) & 1;
  }
  constexpr bool empty() const {
    return (words_[0] | words_[1] | words_[2] | words_[3]) == 0;
  }
  constexpr ByteSet operator|(const ByteSet& other) const {
    ByteSet set;
    for (int i = 0; i < 4; ++i) set.words_[i] = words_[i] | other.words_[i];
    return set;
  }
  constexpr ByteSet operator&(const ByteSet& other) const {
    ByteSet set;
    for (int i = 0; i < 4; ++i) set.words_[i] = words_[i] & other.words_[i];
    return set;
  }
  constexpr ByteSet operator~() const {
    ByteSet set;
    for (int i = 0; i < 4; ++i) set.words_[i] = ~words_[i];
    return set;
  }
  bool operator==(const ByteSet& other) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const ByteSet& set) {
    return H::combine(std::move(h), set.words_);
  }

 private:
  std::array<uint64_t, 4> words_ = {};
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_BYTE_SET_H_
