#include "services/draft_worker/core/jacobi_window.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace foretoken::draft_worker {

JacobiWindow::JacobiWindow(int width, int phrase_tokens)
    : width_(width), phrase_tokens_(phrase_tokens) {
  FORETOKEN_CHECK(width >= 1 && phrase_tokens >= 2);
}

int64_t JacobiWindow::depth() const {
  return static_cast<int64_t>(levels_[0].size() + levels_.size()) - 2;
}

void JacobiWindow::Start(absl::Span<const TokenId> text) {
  FORETOKEN_CHECK(!text.empty());
  // One column for each phrase, and one more for each level still to be filled.
  const size_t columns = width_ + phrase_tokens_ - 2;
  std::vector<TokenId> first(columns);
  for (size_t j = 0; j < columns; ++j) {
    const size_t back = columns - 1 - j;  // the last guess is the last token
    // Text shorter than the window repeats, so each column has a token.
    first[j] = text[text.size() - 1 - back % text.size()];
  }
  levels_.assign(1, std::move(first));
}

void JacobiWindow::LayOut(int32_t root, PassRows& rows) {
  deepest_rows_.resize(levels_[0].size());
  int32_t at = root;
  for (size_t j = 0; j < levels_[0].size(); ++j) {
    if (j > 0) at = rows.Add(levels_[0][j], at);
    deepest_rows_[j] = at;
  }
  for (size_t level = 1; level < levels_.size(); ++level) {
    for (size_t j = 0; j < deepest_rows_.size(); ++j) {
      deepest_rows_[j] = rows.Add(levels_[level][j], deepest_rows_[j]);
    }
  }
  // The root's own output is listed by the chain already.
  for (const int32_t row : deepest_rows_) {
    if (row != root) rows.outputs.push_back(row);
  }
}

void JacobiWindow::Take(TokenId last, absl::Span<const SampledToken> outputs,
                        std::vector<TokenId>& phrases) {
  std::vector<TokenId> answers;
  for (const int32_t row : deepest_rows_) answers.push_back(outputs[row].token);
  levels_[0][0] = last;
  const bool full = static_cast<int>(levels_.size()) == phrase_tokens_ - 1;
  if (full) {
    for (size_t j = 0; j < answers.size(); ++j) {
      for (const auto& level : levels_) phrases.push_back(level[j]);
      phrases.push_back(answers[j]);
    }
    // Level l becomes level l-1 unchanged: the last token has advanced by one,
    // so its cells guess one token less far ahead.
    levels_.erase(levels_.begin());
  } else {
    for (auto& level : levels_) level.erase(level.begin());
    answers.erase(answers.begin());
  }
  levels_.push_back(std::move(answers));
}

}  // namespace foretoken::draft_worker
