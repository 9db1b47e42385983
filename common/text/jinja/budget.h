// Budget: what one rendering may still spend. A template is data of a model's
// files and its input that of a request: neither may exhaust the process.
//
// Steps count the nodes that are evaluated and the items that are visited.
// Bytes count every string and container that is made, released or not, so that
// the live ones are bounded too. Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_BUDGET_H_
#define FORETOKEN_COMMON_TEXT_JINJA_BUDGET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace foretoken::jinja {

struct Limits {
  int64_t max_steps = 5'000'000;
  int64_t max_bytes = int64_t{256} << 20;
  int64_t max_output_bytes = int64_t{16} << 20;
  // Nested evaluations: expressions, statements and macro calls.
  int max_depth = 400;
};

// Asked before memory is used, for the bytes that are held from then on, those
// of before included; an error ends the work with it. Null: all is granted.
using ReserveMemory = std::function<absl::Status(int64_t bytes)>;

// Steps of a search among names that are compared one by one.
inline int64_t NameSteps(size_t names) {
  return static_cast<int64_t>(names / 16);
}

// Steps of looking for a text in another, which takes up to the product of
// their sizes.
inline int64_t SearchSteps(size_t text_bytes, size_t wanted_bytes) {
  return static_cast<int64_t>(text_bytes / 64 +
                              text_bytes / 64 * (wanted_bytes / 64));
}

class Budget {
 public:
  explicit Budget(const Limits& limits, ReserveMemory reserve = nullptr)
      : limits_(limits), reserve_(std::move(reserve)) {}

  const Limits& limits() const { return limits_; }

  absl::Status Spend(int64_t steps, size_t bytes = 0) {
    SpendQuietly(steps, bytes);
    return status();
  }
  // As Spend, for loops that ask for the status at their end.
  bool SpendQuietly(int64_t steps, size_t bytes = 0) {
    steps_ += steps;
    // A single size may be close to the maximum; the sum must not overflow.
    const int64_t left = limits_.max_bytes - bytes_;
    if (left < 0 || bytes > static_cast<uint64_t>(left)) {
      bytes_ = limits_.max_bytes + 1;
    } else {
      bytes_ += static_cast<int64_t>(bytes);
    }
    if (bytes_ > reserved_ && reserve_ != nullptr && !exhausted()) Reserve();
    return !exhausted();
  }
  bool exhausted() const {
    return steps_ > limits_.max_steps || bytes_ > limits_.max_bytes ||
           !refused_.ok();
  }
  // The error of the memory that was asked for.
  const absl::Status& refused() const { return refused_; }
  absl::Status status() const {
    if (!refused_.ok()) return refused_;
    if (steps_ > limits_.max_steps) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", limits_.max_steps, " steps"));
    }
    if (bytes_ > limits_.max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("values of more than ", limits_.max_bytes, " bytes"));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kLeastReserved = int64_t{64} << 10;

  // In steps that double, so that it is asked for seldom.
  void Reserve() {
    reserved_ =
        std::min(limits_.max_bytes, std::max(kLeastReserved, 2 * bytes_));
    refused_ = reserve_(reserved_);
  }

  const Limits limits_;
  const ReserveMemory reserve_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int64_t reserved_ = 0;
  absl::Status refused_;
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_BUDGET_H_
