// N-grams packed into words that sort in token order.
//
// A token is stored as id + 1 in 2 or 3 bytes, big-endian; 0 marks the end of a
// document. A key consists of the bytes of up to max_n tokens, zero beyond the
// n-gram's end, read as big-endian 64-bit words. Thus a key encodes its own
// length, taking a prefix is a mask, and comparing keys compares token
// sequences, shorter first.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_KEY_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_KEY_H_

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/numeric/bits.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_record.h"

namespace foretoken {

inline int TokenBytesFor(int32_t vocab_size) {
  return vocab_size < 0x10000 ? 2 : 3;  // id + 1 must fit
}

inline uint32_t LoadToken(const uint8_t* at, int token_bytes) {
  const uint32_t high = uint32_t{at[0]} << 8 | at[1];
  return token_bytes == 2 ? high : high << 8 | at[2];
}

inline void StoreToken(uint32_t value, int token_bytes, uint8_t* at) {
  for (int i = token_bytes - 1; i >= 0; --i, value >>= 8) {
    at[i] = static_cast<uint8_t>(value);
  }
}

template <int W>
struct NgramKey {
  std::array<uint64_t, W> words{};

  friend auto operator<=>(const NgramKey&, const NgramKey&) = default;

  // `at`: 8 * W readable bytes.
  static NgramKey Load(const uint8_t* at) {
    NgramKey key;
    std::memcpy(key.words.data(), at, 8 * W);
    for (uint64_t& word : key.words) word = __builtin_bswap64(word);
    return key;
  }
  void Store(uint8_t* at) const {  // 8 * W bytes
    for (int i = 0; i < W; ++i) {
      const uint64_t word = __builtin_bswap64(words[i]);
      std::memcpy(at + 8 * i, &word, 8);
    }
  }
  uint8_t Byte(int i) const {
    return static_cast<uint8_t>(words[i / 8] >> (56 - 8 * (i % 8)));
  }
  NgramKey operator&(const NgramKey& mask) const {
    NgramKey key;
    for (int i = 0; i < W; ++i) key.words[i] = words[i] & mask.words[i];
    return key;
  }
  // Short n-grams differ only in the upper bits, so both halves of the product
  // are folded in.
  uint64_t Hash() const {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const uint64_t word : words) {
      const unsigned __int128 product =
          static_cast<unsigned __int128>(hash ^ word) * 0xd6e8feb86659fd93u;
      hash =
          static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
    }
    return hash ^ (hash >> 32);
  }
};

// Number of leading bytes in which two keys agree.
template <int W>
int CommonBytes(const NgramKey<W>& a, const NgramKey<W>& b) {
  for (int i = 0; i < W; ++i) {
    const uint64_t differ = a.words[i] ^ b.words[i];
    if (differ != 0) return 8 * i + absl::countl_zero(differ) / 8;
  }
  return 8 * W;
}

// Token width and maximum n-gram length of a build.
struct KeyLayout {
  int token_bytes = 2;
  int max_n = 1;

  int key_bytes() const { return token_bytes * max_n; }
  int words() const { return (key_bytes() + 7) / 8; }

  // Masks that keep the first n tokens, [max_n + 1].
  template <int W>
  std::vector<NgramKey<W>> Masks() const {
    std::vector<NgramKey<W>> masks(max_n + 1);
    for (int n = 0; n <= max_n; ++n) {
      for (int b = 0; b < n * token_bytes; ++b) {
        masks[n].words[b / 8] |= uint64_t{0xff} << (56 - 8 * (b % 8));
      }
    }
    return masks;
  }

  // Fills `tokens` with the key's token ids; returns its n.
  template <int W>
  int Tokens(const NgramKey<W>& key, TokenId* tokens) const {
    uint8_t bytes[8 * W];
    key.Store(bytes);
    int n = 0;
    for (; n < max_n; ++n) {
      const uint32_t value = LoadToken(bytes + n * token_bytes, token_bytes);
      if (value == 0) break;
      tokens[n] = static_cast<TokenId>(value) - 1;
    }
    return n;
  }
};

// The widest key: kMaxCrestN tokens of 3 bytes.
inline constexpr int kMaxKeyWords = 3;
static_assert(kMaxKeyWords * 8 >= kMaxCrestN * 3);

// Radix sort on the `key_bytes` significant bytes, least significant first,
// skipping bytes that are equal in all keys. `scratch` is as long as `keys`.
template <int W>
void RadixSort(std::vector<NgramKey<W>>& keys,
               std::vector<NgramKey<W>>& scratch, size_t size, int key_bytes) {
  std::vector<std::array<uint32_t, 256>> histograms(key_bytes);
  for (auto& histogram : histograms) histogram.fill(0);
  for (size_t i = 0; i < size; ++i) {
    for (int b = 0; b < key_bytes; ++b) ++histograms[b][keys[i].Byte(b)];
  }
  for (int b = key_bytes - 1; b >= 0; --b) {
    std::array<uint32_t, 256>& histogram = histograms[b];
    if (size == 0 || histogram[keys[0].Byte(b)] == size) continue;
    uint32_t sum = 0;
    for (uint32_t& entry : histogram) {
      const uint32_t count = entry;
      entry = sum;
      sum += count;
    }
    for (size_t i = 0; i < size; ++i) {
      scratch[histogram[keys[i].Byte(b)]++] = keys[i];
    }
    keys.swap(scratch);
  }
}

// Calls fn.template operator()<W>() for the number of words of the layout.
template <typename Fn>
auto WithKeyWords(const KeyLayout& layout, Fn fn) {
  switch (layout.words()) {
    case 1:
      return fn.template operator()<1>();
    case 2:
      return fn.template operator()<2>();
    default:
      return fn.template operator()<3>();
  }
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_KEY_H_
