#include "common/base/json.h"

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr int kMaxDepth = 64;
// nlohmann's message quotes the offending token, which may be very long.
constexpr size_t kMaxMessageBytes = 200;

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  bool too_deep = false;
  const auto watch_depth = [&too_deep](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) too_deep = true;
    return !too_deep;
  };
  // The callback discards everything below the limit, so the resulting tree
  // stays shallow; nlohmann's parser itself does not recurse.
  try {
    Json value = Json::parse(text.begin(), text.end(), watch_depth);
    if (too_deep) {
      return absl::InvalidArgumentError(
          absl::StrCat("JSON nested deeper than ", kMaxDepth, " levels"));
    }
    return value;
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bad JSON: ", absl::string_view(e.what()).substr(0, kMaxMessageBytes)));
  }
}

absl::StatusOr<Json> ReadJsonFile(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<Json> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  return value;
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace foretoken
