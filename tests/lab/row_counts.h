// RowCounts: how many passes had how many rows, in bins.
//
// Within a bin a pass time that is linear in its rows needs only their number
// and sum, so that a time interpolated between the edges is exact.
// Thread-compatible.
#ifndef FORETOKEN_TESTS_LAB_ROW_COUNTS_H_
#define FORETOKEN_TESTS_LAB_ROW_COUNTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "common/base/check.h"

namespace foretoken {

class RowCounts {
 public:
  // Bin i holds passes of kEdges[i] to kEdges[i + 1] - 1 rows, the last one all
  // larger ones.
  static constexpr std::array<int32_t, 14> kEdges = {
      1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  struct Bin {
    int64_t passes = 0;
    int64_t rows = 0;  // their sum
  };

  // `rows`: at least 1.
  void Add(int32_t rows) {
    FORETOKEN_CHECK(rows >= 1);
    const auto above = std::upper_bound(kEdges.begin(), kEdges.end(), rows);
    Bin& bin = bins_[std::distance(kEdges.begin(), above) - 1];
    ++bin.passes;
    bin.rows += rows;
  }

  const std::array<Bin, kEdges.size()>& bins() const { return bins_; }
  int64_t passes() const {
    int64_t sum = 0;
    for (const Bin& bin : bins_) sum += bin.passes;
    return sum;
  }
  int64_t rows() const {
    int64_t sum = 0;
    for (const Bin& bin : bins_) sum += bin.rows;
    return sum;
  }

 private:
  std::array<Bin, kEdges.size()> bins_{};
};

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_ROW_COUNTS_H_
