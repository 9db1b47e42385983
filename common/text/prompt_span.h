// A prompt in pieces that say who wrote them.
//
// A chat template writes control tokens between the texts of a request. Where a
// text of the request spells such a token, it must stay text: the tokenizer
// looks for control tokens in the template's pieces only.
#ifndef FORETOKEN_COMMON_TEXT_PROMPT_SPAN_H_
#define FORETOKEN_COMMON_TEXT_PROMPT_SPAN_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace foretoken {

struct PromptSpan {
  std::string text;
  bool from_template = true;  // false: a value of the request
};

inline bool operator==(const PromptSpan& a, const PromptSpan& b) {
  return a.text == b.text && a.from_template == b.from_template;
}

// Whether an added token steers the model, unlike text: a special token,
// or one whose text is in brackets (<think>, [INST]), which many files do not
// mark as special.
bool IsControlToken(absl::string_view content, bool special);

// The spans as one text. Thread-compatible.
class JoinedSpans {
 public:
  explicit JoinedSpans(absl::Span<const PromptSpan> spans);

  const std::string& text() const { return text_; }
  // Whether any of the bytes [begin, end) is of the request.
  bool HasRequest(size_t begin, size_t end) const;

 private:
  friend class NormalizedSpans;

  std::string text_;
  // Ascending, disjoint, not empty: [begin, end) of the request's bytes.
  std::vector<std::pair<size_t, size_t>> request_;
};

// Where the request's bytes are in a part of the joined text once it is
// normalised. A normaliser may change lengths and join characters across the
// border of two spans; what cannot be told apart counts as the request's.
class NormalizedSpans {
 public:
  using Normalize = absl::FunctionRef<std::string(absl::string_view)>;

  // The part [begin, end) of the joined text became `normalized`.
  NormalizedSpans(const JoinedSpans& spans, size_t begin, size_t end,
                  absl::string_view normalized, Normalize normalize);

  // As JoinedSpans::HasRequest, by offsets in the normalised part.
  bool HasRequest(size_t begin, size_t end) const;

 private:
  std::vector<std::pair<size_t, size_t>> request_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_PROMPT_SPAN_H_
