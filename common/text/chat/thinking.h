// The tags between which a model thinks before it answers, by its chat
// template.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_THINKING_H_
#define FORETOKEN_COMMON_TEXT_CHAT_THINKING_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/text/prompt_span.h"

namespace foretoken {

// A tag's first byte stands nowhere else in it; see TagMatcher.
struct ThinkingTags {
  absl::string_view open;
  absl::string_view close;
};

// The tags of a model with this template; nullopt: it does not think. They are
// literals.
std::optional<ThinkingTags> ThinkingTagsOf(absl::string_view chat_template);

// How far the thinking is as an answer begins.
enum class ThinkingStage : uint8_t {
  kBefore,  // the model may think
  kInside,  // the prompt ends in the opening tag
  kOver,    // the prompt ends in the closing tag: templates that are told not
            // to think write it
};

// Only text that the template wrote after all text of the request is looked
// at; white space at its end does not count.
ThinkingStage StageAfter(absl::Span<const PromptSpan> prompt,
                         const ThinkingTags& tags);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_THINKING_H_
