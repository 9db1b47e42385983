// MixBits: a bijection of 64-bit integers in which every input bit affects
// every output bit. Used for hashes and for reproducible random numbers from
// counters. Not for secrets.
//
// Source: the generator SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#ifndef FORETOKEN_COMMON_BASE_MIX_H_
#define FORETOKEN_COMMON_BASE_MIX_H_

#include <cstdint>

namespace foretoken {

// Step of SplitMix64's counter (2^64 divided by the golden ratio).
inline constexpr uint64_t kMixStep = 0x9e3779b97f4a7c15u;

constexpr uint64_t MixBits(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_MIX_H_
