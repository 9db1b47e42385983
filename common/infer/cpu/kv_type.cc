#include "common/infer/cpu/kv_type.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace foretoken {
namespace {

constexpr char kAuto[] = "auto";

}  // namespace

std::vector<std::string> KvTypeChoices() {
  std::vector<std::string> choices = {kAuto};
  choices.insert(choices.end(), std::begin(kKvTypeNames),
                 std::end(kKvTypeNames));
  return choices;
}

absl::StatusOr<std::optional<KvType>> ParseKvType(absl::string_view text) {
  if (text == kAuto) return std::optional<KvType>();
  for (size_t i = 0; i < std::size(kKvTypeNames); ++i) {
    if (text == kKvTypeNames[i]) {
      return std::optional<KvType>(static_cast<KvType>(i));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--kv-type=", text, ": want ", absl::StrJoin(KvTypeChoices(), "|")));
}

}  // namespace foretoken
