// PassTiming: the cost of a forward pass by its number of rows, as measured on
// this machine. It is the price of a draft node. Its size is fixed.
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

  // Updates the moving averages for a completed pass of `rows` rows. There are
  // two classes of row counts per doubling.
  void Observe(int32_t rows, absl::Duration took);

  // Seconds of a pass of `rows` rows: interpolated between points, never less
  // than for fewer rows, beyond the last point in proportion. 0 if unknown.
  double Seconds(double rows) const;

  // Returns a point for every class observed, ascending in rows.
  std::vector<Point> points() const;

  // Times passes over chains of 1, 2, 4, ... and finally `max_rows` rows,
  // taking the faster of two, on a backend that is not in use yet; of two
  // counts close together only the larger. Stops early when `budget` is used
  // up. Leaves the backend as it was. Errors are the backend's.
  static absl::StatusOr<PassTiming> Measure(Backend& backend, int32_t max_rows,
                                            absl::Duration budget);

 private:
  // Row counts 1, 2, 3, 4, 6, 8, 12, 16, ...; a class includes the counts down
  // to the previous one.
  static constexpr int kClasses = 48;
  static int ClassOf(int32_t rows);
  std::array<Point, kClasses> classes_{};  // rows == 0: not seen
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_PASS_TIMING_H_
