// Byte-pair encoding: the merge table, and merging within one piece of text.
//
// The caller cuts text into symbols (characters or bytes), each with an id. The
// table says which adjacent pairs merge and into what; the pair of lowest rank
// merges first, the leftmost among equals. Both SentencePiece (rank = order of
// the scores) and Hugging Face (rank = index in the list of merges) work this
// way.
//
// Source: Sennrich et al., arXiv:1508.07909, "Byte Pair Encoding".
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_BPE_H_
#define FORETOKEN_COMMON_TEXT_BPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace foretoken {

struct BpeSymbol {
  int32_t id = kNoMerge;  // index into the table's symbols
  uint32_t begin = 0;     // first byte within the piece; ends where the next
                          // symbol begins

  static constexpr int32_t kNoMerge = -1;  // id of symbols that never merge
};

// Symbols of single characters by code point; ASCII takes no hash look-up.
class CharacterSymbols {
 public:
  CharacterSymbols() { ascii_.fill(BpeSymbol::kNoMerge); }

  void Set(uint32_t code_point, int32_t id) {
    if (code_point < ascii_.size()) {
      ascii_[code_point] = id;
    } else {
      others_[code_point] = id;
    }
  }
  // Returns kNoMerge for a character without a symbol.
  int32_t Find(uint32_t code_point) const {
    if (code_point < ascii_.size()) return ascii_[code_point];
    const auto found = others_.find(code_point);
    return found == others_.end() ? BpeSymbol::kNoMerge : found->second;
  }

 private:
  std::array<int32_t, 128> ascii_;
  absl::flat_hash_map<uint32_t, int32_t> others_;
};

class BpeMerges {
 public:
  struct Merge {
    uint32_t rank = kNone;  // lower merges first
    int32_t merged = 0;     // id of the merged symbol

    static constexpr uint32_t kNone = UINT32_MAX;
  };

  // Buffers reused from piece to piece, to save allocations. Owned by one
  // thread.
  class Scratch;

  explicit BpeMerges(size_t expected_pairs = 0);

  // Ids are >= 0. If a pair is added twice, the later merge wins, as in Hugging
  // Face's tables.
  void Add(int32_t left, int32_t right, Merge merge);

  // Returns rank kNone if the two do not merge.
  Merge Find(int32_t left, int32_t right) const;

  // Merges `symbols` in place until nothing merges. O(n log n).
  void Apply(std::vector<BpeSymbol>& symbols, Scratch& scratch) const;

  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;

  size_t Home(uint64_t key) const;
  void Grow(size_t capacity);
  void ApplyToFew(std::vector<BpeSymbol>& symbols, Scratch& scratch) const;
  void ApplyToMany(std::vector<BpeSymbol>& symbols, Scratch& scratch) const;

  std::vector<Slot> slots_;  // open addressing, a power of two, half full
  int shift_ = 0;
  size_t size_ = 0;
};

class BpeMerges::Scratch {
 public:
  // Pair look-ups and heap operations so far; tests use it to check that the
  // work is not quadratic in the length of the text.
  uint64_t work() const { return work_; }

 private:
  friend class BpeMerges;
  struct Candidate {
    uint32_t rank;
    uint32_t left;   // index of the left symbol
    uint32_t right;  // index of the right one, to detect stale entries
    uint32_t end;    // next[right] when the entry was made, for the same
    int32_t merged;
  };
  std::vector<Merge> pairs_;
  std::vector<Candidate> heap_;
  std::vector<uint32_t> next_;
  std::vector<uint32_t> previous_;
  uint64_t work_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_BPE_H_
