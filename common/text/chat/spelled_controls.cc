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
void SpelledControls::Take(absl::Span<const TokenId> ids,
                           absl::string_view text, Sink sink) {
  if (controls_.empty()) return sink(text, /*is_control=*/false);
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
  while (!places_.empty()) {
    const int64_t before =
        std::max<int64_t>(places_.front().first - taken_bytes_, 0);
    if (before > static_cast<int64_t>(text.size())) break;
    if (before > 0) sink(text.substr(0, before), /*is_control=*/false);
    text.remove_prefix(before);
    taken_bytes_ += before;
    sink(places_.front().second, /*is_control=*/true);
    places_.pop_front();
  }
  if (!text.empty()) sink(text, /*is_control=*/false);
  taken_bytes_ += static_cast<int64_t>(text.size());
}

void SpelledControls::Finish(Sink sink) {
  for (const auto& [offset, spelling] : places_) {
    sink(spelling, /*is_control=*/true);
  }
  places_.clear();
}

}  // namespace foretoken
