#include "tests/lab/greedy_agreement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/speculation/token_tree.h"

namespace foretoken {
namespace {

// Reads `text` in chunks of rows, and counts.
absl::Status ReadText(Backend& draft, SessionId session, const TargetText& text,
                      Agreement& agreement) {
  // The last token's row would choose one that the target did not write.
  const int64_t rows = static_cast<int64_t>(text.tokens.size()) - 1;
  FORETOKEN_RETURN_IF_ERROR(draft.Reserve(session, rows));
  const int64_t most = std::min<int64_t>(draft.max_rows(), 256);
  for (int64_t at = 0; at < rows;) {
    const int64_t count = std::min(most, rows - at);
    std::vector<int32_t> parents(count);
    std::iota(parents.begin(), parents.end(), kRootParent);
    std::vector<int32_t> path(count);
    std::iota(path.begin(), path.end(), 0);
    std::vector<int32_t> outputs;
    for (int64_t row = std::max<int64_t>(0, text.prompt_length - 1 - at);
         row < count; ++row) {
      outputs.push_back(static_cast<int32_t>(row));
    }
    PassSession share;
    share.session = session;
    share.tokens = absl::MakeConstSpan(text.tokens).subspan(at, count);
    share.parents = parents;
    share.outputs =
        outputs.empty() ? RowOutputs::kNone : RowOutputs::kListedRows;
    share.output_rows = outputs;
    PassResult result;
    FORETOKEN_RETURN_IF_ERROR(draft.Forward({&share, 1}, result));
    for (size_t i = 0; i < outputs.size(); ++i) {
      ++agreement.positions;
      agreement.equal +=
          result.outputs[0][i].token == text.tokens[at + outputs[i] + 1];
    }
    FORETOKEN_RETURN_IF_ERROR(draft.Commit(session, path));
    at += count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Agreement> MeasureAgreement(Backend& draft,
                                           absl::Span<const TargetText> texts) {
  Agreement agreement;
  for (const TargetText& text : texts) {
    FORETOKEN_CHECK(text.prompt_length >= 1 &&
                    text.prompt_length <=
                        static_cast<int64_t>(text.tokens.size()));
    FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                               draft.Open("", text.tokens));
    const absl::Status read = ReadText(draft, opened.session, text, agreement);
    FORETOKEN_RETURN_IF_ERROR(draft.Close(opened.session));
    FORETOKEN_RETURN_IF_ERROR(read);
  }
  return agreement;
}

absl::StatusOr<FoundNoise> FindNoise(
    const std::function<absl::StatusOr<double>(double)>& rate_of, double wanted,
    double tolerance, double most, int steps) {
  FORETOKEN_CHECK(steps >= 1 && most > 0);
  FoundNoise best;
  double low = 0;
  double high = most;
  for (int step = 0; step < steps; ++step) {
    const double middle = (low + high) / 2;
    FORETOKEN_ASSIGN_OR_RETURN(const double rate, rate_of(middle));
    if (step == 0 || std::abs(rate - wanted) < std::abs(best.rate - wanted)) {
      best = {middle, rate};
    }
    if (std::abs(best.rate - wanted) <= tolerance) break;
    (rate > wanted ? low : high) = middle;
  }
  return best;
}

}  // namespace foretoken
