// Any bytes as JSON: taken, refused and read as the library's own parser does,
// but for the limits; what was read is read again from its own text.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using foretoken::Json;
  using foretoken::ParseJson;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const Json want = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  const auto got = ParseJson(text);
  if (!got.ok()) {
    FORETOKEN_CHECK(got.status().message().size() < 300);
    FORETOKEN_CHECK(want.is_discarded() ||
                    absl::StrContains(got.status().message(), "deeper"));
    return 0;
  }
  FORETOKEN_CHECK(!want.is_discarded() && *got == want);
  const auto again = ParseJson(foretoken::DumpJson(*got));
  FORETOKEN_CHECK(again.ok() && *again == *got);

  // Tighter limits refuse more and change nothing else.
  const foretoken::JsonLimits tight = {
      .max_depth = 3, .max_values = 10, .unique_keys = true};
  const auto within = ParseJson(text, tight);
  FORETOKEN_CHECK(!within.ok() || *within == *got);
  return 0;
}
