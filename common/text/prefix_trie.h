// Finds the longest of a set of strings that a text begins with: added tokens,
// user-defined pieces.
//
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_PREFIX_TRIE_H_
#define FORETOKEN_COMMON_TEXT_PREFIX_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace foretoken {

class PrefixTrie {
 public:
  struct Match {
    size_t length = 0;  // bytes; 0: no string of the set stands here
    int32_t value = -1;
  };

  // Empty strings are ignored; a string that is added twice takes the later
  // value.
  void Add(absl::string_view string, int32_t value);

  Match Longest(absl::string_view text) const;

  // False for bytes that begin no string, so that a scan can pass over them.
  bool MayBegin(char byte) const { return begins_[static_cast<uint8_t>(byte)]; }
  bool empty() const { return nodes_ == 1; }
  size_t longest_length() const { return longest_length_; }

 private:
  std::array<bool, 256> begins_{};
  absl::flat_hash_map<uint64_t, int32_t> edges_;  // node << 8 | byte -> node
  absl::flat_hash_map<int32_t, int32_t> values_;  // node -> value
  int32_t nodes_ = 1;                             // node 0 is the root
  size_t longest_length_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_PREFIX_TRIE_H_
