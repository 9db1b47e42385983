// Budget: what one rendering may still spend. A template is data of a model's
// files and its input that of a request: neither may exhaust the process.
//
// Steps count the nodes that are evaluated and the items that are visited.
// Bytes count every string and container that is made, released or not, so that
// the live ones are bounded too. All that scans, hashes, compares or copies
// text spends steps by its size before it does so: a loop over a string of
// megabytes then ends as early as one over many values. Time is the caller's:
// it is asked now and then whether the rendering may go on. Owned by one
// thread.
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

// Asked every few thousand steps; an error ends the work with it. Null: it may
// always go on.
using MayGoOn = std::function<absl::Status()>;

// Steps of a search among names that are compared one by one.
inline int64_t NameSteps(size_t names) {
  return static_cast<int64_t>(names / 16);
}

// Steps of scanning, hashing, comparing or copying bytes.
inline int64_t ByteSteps(size_t bytes) {
  return static_cast<int64_t>(bytes / 64);
}

// Steps of looking at every character of a text by itself.
inline int64_t CharacterSteps(size_t bytes) {
  return static_cast<int64_t>(bytes / 16);
}

// Steps of looking for a text in another, which takes up to the product of
// their sizes.
inline int64_t SearchSteps(size_t text_bytes, size_t wanted_bytes) {
  return static_cast<int64_t>(text_bytes / 64 +
                              text_bytes / 64 * (wanted_bytes / 16));
}

class Budget {
 public:
  explicit Budget(const Limits& limits, ReserveMemory reserve = nullptr,
                  MayGoOn may_go_on = nullptr)
      : limits_(limits),
        reserve_(std::move(reserve)),
        may_go_on_(std::move(may_go_on)) {}

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
    if (steps_ + bytes_ / 64 >= next_question_ && may_go_on_ != nullptr &&
        !exhausted()) {
      next_question_ = steps_ + bytes_ / 64 + kStepsBetweenQuestions;
      refused_ = may_go_on_();
    }
    return !exhausted();
  }
  bool exhausted() const {
    return steps_ > limits_.max_steps || bytes_ > limits_.max_bytes ||
           !refused_.ok();
  }
  // The error of the memory that was asked for, or of the question whether the
  // work may go on.
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
  // Some tenths of a millisecond.
  static constexpr int64_t kStepsBetweenQuestions = 4096;

  // In steps that double, so that it is asked for seldom.
  void Reserve() {
    reserved_ =
        std::min(limits_.max_bytes, std::max(kLeastReserved, 2 * bytes_));
    refused_ = reserve_(reserved_);
  }

  const Limits limits_;
  const ReserveMemory reserve_;
  const MayGoOn may_go_on_;
  int64_t next_question_ = 0;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int64_t reserved_ = 0;
  absl::Status refused_;
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_BUDGET_H_
