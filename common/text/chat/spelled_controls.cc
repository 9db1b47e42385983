#include "common/text/chat/spelled_controls.h"

#include <algorithm>

namespace foretoken {

ControlTokens FindControls(const Tokenizer& tokenizer,
                           absl::Span<const absl::string_view> texts) {
  ControlTokens found;
  for (TokenId id = 0; !texts.empty() && id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsSpecial(id)) continue;
    const absl::string_view content = tokenizer.vocabulary().content(id);
    if (std::find(texts.begin(), texts.end(), content) != texts.end()) {
      found.emplace_back(id, std::string(content));
    }
  }
  return found;
}

// A control token decodes to nothing, so the text lacks it. The offset at which
// it belongs is the number of bytes decoded before it; `text` may lag behind
// the ids, since stop strings hold text back, so places wait until their offset
// has come.
std::string SpelledControls::Take(absl::Span<const TokenId> ids,
                                  absl::string_view text) {
  if (controls_.empty()) return std::string(text);
  for (const TokenId id : ids) {
    std::string decoded;
    // An id that the vocabulary lacks has no text, so an error means an empty
    // string.
    detokenizer_.Push(id, decoded).IgnoreError();
    decoded_bytes_ += static_cast<int64_t>(decoded.size());
    for (const auto& [control, spelling] : controls_) {
      if (control == id) places_.emplace_back(decoded_bytes_, spelling);
    }
  }
  std::string out;
  while (!places_.empty()) {
    const int64_t before =
        std::max<int64_t>(places_.front().first - taken_bytes_, 0);
    if (before > static_cast<int64_t>(text.size())) break;
    out.append(text.data(), before);
    text.remove_prefix(before);
    taken_bytes_ += before;
    out.append(places_.front().second.data(), places_.front().second.size());
    places_.pop_front();
  }
  out.append(text.data(), text.size());
  taken_bytes_ += static_cast<int64_t>(text.size());
  return out;
}

std::string SpelledControls::Finish() {
  std::string out;
  for (const auto& [offset, spelling] : places_) {
    out.append(spelling.data(), spelling.size());
  }
  places_.clear();
  return out;
}

}  // namespace foretoken
