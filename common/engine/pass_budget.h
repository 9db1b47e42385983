// PassBudget: which rows share a pass: rounds whole and oldest first, then
// chunks of text that has no KV yet.
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_ENGINE_PASS_BUDGET_H_
#define FORETOKEN_COMMON_ENGINE_PASS_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace foretoken {

class PassBudget {
 public:
  // `rows` of the pass; `text_rows` of them are kept for text. Besides rounds,
  // text gets no more than those.
  PassBudget(int32_t rows, int32_t text_rows)
      : rows_(rows), text_rows_(text_rows) {}

  // False, with nothing taken, if the round must wait for another pass. A round
  // is not split, and the first always fits.
  bool TakeRound(int32_t rows) {
    if (round_rows_ > 0 && round_rows_ + rows > rows_ - text_rows_) {
      return false;
    }
    round_rows_ += rows;
    return true;
  }

  // Returns `rows` rows that a taken round no longer needs.
  void GiveBack(int32_t rows) { round_rows_ -= rows; }

  // Takes up to `rows` rows of text, after the rounds. Returns how many.
  int32_t TakeText(int64_t rows) {
    const int32_t most =
        round_rows_ == 0 ? rows_ : std::min(text_rows_, rows_ - round_rows_);
    const int32_t taken = static_cast<int32_t>(
        std::min<int64_t>(rows, std::max(most - text_taken_, 0)));
    text_taken_ += taken;
    return taken;
  }

 private:
  int32_t rows_;
  int32_t text_rows_;
  int32_t round_rows_ = 0;
  int32_t text_taken_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_PASS_BUDGET_H_
