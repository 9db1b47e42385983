#include "tests/lab/rest/suffix_array.h"

#include <algorithm>
#include <numeric>

namespace foretoken {
namespace {

// Induced sorting of the suffixes of one string whose last symbol is 0 and
// occurs nowhere else.
//
// A suffix is of type S if it is smaller than the next one, else of type L; an
// LMS suffix is an S suffix preceded by an L suffix. Sorting the LMS suffixes
// is a problem of at most half the size, and two scans induce the order of all
// other suffixes from them.
class InducedSort {
 public:
  InducedSort(absl::Span<const int32_t> text, int32_t symbols,
              absl::Span<int32_t> sorted)
      : text_(text),
        n_(static_cast<int32_t>(text.size())),
        sorted_(sorted),
        is_s_(text.size()),
        bucket_sizes_(symbols, 0),
        bucket_(symbols) {
    is_s_[n_ - 1] = true;
    for (int32_t i = n_ - 2; i >= 0; --i) {
      is_s_[i] =
          text_[i] < text_[i + 1] || (text_[i] == text_[i + 1] && is_s_[i + 1]);
    }
    for (const int32_t symbol : text_) ++bucket_sizes_[symbol];
  }

  void Run() {
    // With the LMS suffixes in any order, inducing sorts the LMS substrings.
    std::fill(sorted_.begin(), sorted_.end(), -1);
    BucketEnds();
    for (int32_t i = 1; i < n_; ++i) {
      if (IsLms(i)) sorted_[--bucket_[text_[i]]] = i;
    }
    Induce();
    SortLmsSuffixes();
    Induce();
  }

 private:
  bool IsLms(int32_t i) const { return i > 0 && is_s_[i] && !is_s_[i - 1]; }

  void BucketStarts() {
    std::exclusive_scan(bucket_sizes_.begin(), bucket_sizes_.end(),
                        bucket_.begin(), 0);
  }
  void BucketEnds() {
    std::partial_sum(bucket_sizes_.begin(), bucket_sizes_.end(),
                     bucket_.begin());
  }

  void Induce() {
    // L suffixes left to right from the bucket starts, then S suffixes right to
    // left from the bucket ends.
    BucketStarts();
    for (int32_t i = 0; i < n_; ++i) {
      const int32_t before = sorted_[i] - 1;
      if (before >= 0 && !is_s_[before]) {
        sorted_[bucket_[text_[before]]++] = before;
      }
    }
    BucketEnds();
    for (int32_t i = n_ - 1; i >= 0; --i) {
      const int32_t before = sorted_[i] - 1;
      if (before >= 0 && is_s_[before]) {
        sorted_[--bucket_[text_[before]]] = before;
      }
    }
  }

  // Whether the LMS substrings at a and b are equal.
  bool SameLmsSubstring(int32_t a, int32_t b) const {
    for (int32_t d = 0;; ++d) {
      // The sentinel is unique, so neither index passes the end.
      if (text_[a + d] != text_[b + d] || is_s_[a + d] != is_s_[b + d]) {
        return false;
      }
      if (d > 0 && (IsLms(a + d) || IsLms(b + d))) {
        return IsLms(a + d) && IsLms(b + d);
      }
    }
  }

  // Names the LMS substrings by rank, sorts the string of names, and puts the
  // sorted LMS suffixes at the ends of their buckets.
  void SortLmsSuffixes() {
    int32_t lms = 0;
    for (int32_t i = 0; i < n_; ++i) {
      if (IsLms(sorted_[i])) sorted_[lms++] = sorted_[i];
    }
    // LMS positions are at least two apart, so half of the index is a unique
    // slot.
    std::fill(sorted_.begin() + lms, sorted_.end(), -1);
    int32_t names = 0;
    for (int32_t i = 0; i < lms; ++i) {
      if (i > 0 && !SameLmsSubstring(sorted_[i - 1], sorted_[i])) ++names;
      sorted_[lms + sorted_[i] / 2] = names;
    }
    ++names;
    std::vector<int32_t> named;
    std::vector<int32_t> positions;
    named.reserve(lms);
    positions.reserve(lms);
    for (int32_t i = 1; i < n_; ++i) {
      if (!IsLms(i)) continue;
      positions.push_back(i);
      named.push_back(sorted_[lms + i / 2]);
    }
    std::vector<int32_t> order(lms);
    // All names are distinct: they are the order already.
    if (names == lms) {
      for (int32_t i = 0; i < lms; ++i) order[named[i]] = i;
    } else {
      InducedSort(named, names, absl::MakeSpan(order)).Run();
    }
    std::fill(sorted_.begin(), sorted_.end(), -1);
    BucketEnds();
    for (int32_t i = lms - 1; i >= 0; --i) {
      const int32_t position = positions[order[i]];
      sorted_[--bucket_[text_[position]]] = position;
    }
  }

  const absl::Span<const int32_t> text_;
  const int32_t n_;
  const absl::Span<int32_t> sorted_;
  std::vector<bool> is_s_;
  std::vector<int32_t> bucket_sizes_;  // [symbols]
  std::vector<int32_t> bucket_;        // [symbols], next free place
};

}  // namespace

std::vector<int32_t> BuildSuffixArray(absl::Span<const TokenId> tokens,
                                      int32_t vocab_size) {
  if (tokens.empty()) return {};
  std::vector<int32_t> text(tokens.size() + 1, 0);
  // Shift the symbols so that 0 is free for the sentinel.
  for (size_t i = 0; i < tokens.size(); ++i) text[i] = tokens[i] + 1;
  std::vector<int32_t> sorted(text.size());
  InducedSort(text, vocab_size + 1, absl::MakeSpan(sorted)).Run();
  sorted.erase(sorted.begin());  // the suffix of the sentinel
  return sorted;
}

}  // namespace foretoken
