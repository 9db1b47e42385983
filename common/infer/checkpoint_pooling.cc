#include "common/infer/checkpoint_pooling.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/infer/json_fields.h"

namespace foretoken {
namespace {

constexpr char kMean[] = "pooling_mode_mean_tokens";
constexpr char kLast[] = "pooling_mode_lasttoken";

Pooling PoolingOf(bool mean, bool last) {
  if (mean == last) return Pooling::kNone;
  return mean ? Pooling::kMean : Pooling::kLast;
}

}  // namespace

absl::StatusOr<Pooling> ParsePooling(const Json& json,
                                     const std::string& file) {
  const JsonFields fields(json, file);
  // Newer files name one mode, older ones have a flag for each.
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<std::string> mode,
                             fields.String("pooling_mode"));
  if (mode.has_value()) return PoolingOf(*mode == "mean", *mode == "lasttoken");
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<bool> mean,
                             fields.Bool(kMean));
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<bool> last,
                             fields.Bool(kLast));
  for (const auto& [name, value] : json.items()) {
    if (!absl::StartsWith(name, "pooling_mode_") || name == kMean ||
        name == kLast) {
      continue;
    }
    FORETOKEN_ASSIGN_OR_RETURN(const std::optional<bool> other,
                               fields.Bool(name));
    if (other.value_or(false)) return Pooling::kNone;
  }
  // sentence-transformers takes the mean where a file says nothing.
  return PoolingOf(mean.value_or(true), last.value_or(false));
}

}  // namespace foretoken
