// PrefixTrie: finds the longest string of a set that a text begins with. Used
// for added tokens and user-defined pieces.
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
    size_t length = 0;  // bytes; 0: no match
    int32_t value = -1;
  };

  // Ignores empty strings. If a string is added twice, the later value wins.
  void Add(absl::string_view string, int32_t value);

  Match Longest(absl::string_view text) const;

  // False if no string begins with `byte`, so that a scan can skip it.
  bool MayBegin(char byte) const { return begins_[static_cast<uint8_t>(byte)]; }
  bool empty() const { return nodes_ == 1; }

 private:
  std::array<bool, 256> begins_{};
  absl::flat_hash_map<uint64_t, int32_t> edges_;  // node << 8 | byte -> node
  absl::flat_hash_map<int32_t, int32_t> values_;  // node -> value
  int32_t nodes_ = 1;                             // node 0 is the root
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_PREFIX_TRIE_H_
