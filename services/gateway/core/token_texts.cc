#include "services/gateway/core/token_texts.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/utf8.h"

namespace foretoken::gateway {

std::string TokenTexts::Of(TokenId token) const {
  // A token without text still has to be told apart from others.
  if (tokenizer_ == nullptr || !tokenizer_->vocabulary().Contains(token)) {
    return absl::StrCat("token_id:", token);
  }
  return std::string(tokenizer_->IsSpecial(token)
                         ? tokenizer_->vocabulary().content(token)
                         : tokenizer_->TokenBytes(token));
}

std::string TokenTexts::Spelled(TokenId token) const {
  std::string text = Of(token);
  if (IsValidUtf8(text)) return text;
  // As OpenAI's API spells tokens that are no whole characters.
  std::string spelled = "bytes:";
  for (const char byte : text) {
    absl::StrAppendFormat(&spelled, "\\x%02x", static_cast<uint8_t>(byte));
  }
  return spelled;
}

int64_t CountCharacters(absl::string_view text) {
  int64_t count = 0;
  while (!text.empty()) {
    // At least one byte, so that invalid text ends as well.
    text.remove_prefix(std::max<size_t>(1, NextUtf8(text).length));
    ++count;
  }
  return count;
}

}  // namespace foretoken::gateway
