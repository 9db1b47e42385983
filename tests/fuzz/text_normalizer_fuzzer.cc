// Any JSON as the normalizer of a tokenizer.json, and any text: an error, or
// UTF-8 within the bound that the normalizer promises.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/text/text_normalizer.h"
#include "common/text/utf8.h"

// The JSON ends at the first zero byte; the text follows it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxGrowth = 33;
  constexpr size_t kMaxPrepended = 64 * 16;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\0');
  if (end == absl::string_view::npos) return 0;
  const absl::string_view text = bytes.substr(end + 1);
  const auto field = foretoken::ParseJson(bytes.substr(0, end));
  if (!field.ok() || !foretoken::IsValidUtf8(text)) return 0;
  const auto normalizer = foretoken::TextNormalizer::Create(*field);
  if (!normalizer.ok()) return 0;
  const std::string normal = normalizer->Normalize(text);
  FORETOKEN_CHECK(normal.size() <= kMaxGrowth * (text.size() + kMaxPrepended));
  FORETOKEN_CHECK(foretoken::IsValidUtf8(normal));
  return 0;
}
