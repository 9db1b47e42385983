// PassTiming: what a forward pass costs by its number of rows, as measured on
// this machine: the price of a draft node. Fixed in size.
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_INFER_PASS_TIMING_H_
#define FORETOKEN_COMMON_INFER_PASS_TIMING_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/infer/backend.h"

namespace foretoken {

class PassTiming {
 public:
  struct Point {
    double rows = 0;
    double seconds = 0;
  };

  // A pass that ran: moves the averages of its class of row counts, of which
  // there are two for each doubling.
  void Observe(int32_t rows, absl::Duration took);

  // Of every class that was seen, ascending in rows.
  std::vector<Point> points() const;

  // Passes over chains of 1, 2, 4, ... rows and at last `max_rows`, each the
  // faster of two, on a backend that nobody uses yet; of two counts close to
  // each other the larger. Ends early once `budget` is used up. Leaves the
  // backend as it was. Errors are the backend's.
  static absl::StatusOr<PassTiming> Measure(Backend& backend, int32_t max_rows,
                                            absl::Duration budget);

 private:
  // Row counts 1, 2, 3, 4, 6, 8, 12, 16, ... and what lies below each.
  static constexpr int kClasses = 48;
  static int ClassOf(int32_t rows);
  std::array<Point, kClasses> classes_{};  // rows == 0: not seen
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_PASS_TIMING_H_
