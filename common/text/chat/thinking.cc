#include "common/text/chat/thinking.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace foretoken {
namespace {

constexpr ThinkingTags kKnown[] = {
    {"<think>", "</think>"},  // DeepSeek, Qwen and most others
    {"[THINK]", "[/THINK]"},  // Magistral
};

}  // namespace

// The closing tag decides: every template that knows thinking cuts it from
// earlier answers or writes it closed, but some leave it to the model to open
// the tag (the first template of DeepSeek-R1).
std::optional<ThinkingTags> ThinkingTagsOf(absl::string_view chat_template) {
  for (const ThinkingTags& tags : kKnown) {
    if (absl::StrContains(chat_template, tags.close)) return tags;
  }
  return std::nullopt;
}

ThinkingStage StageAfter(absl::Span<const PromptSpan> prompt,
                         const ThinkingTags& tags) {
  // Spans alternate: the last one is all that follows the request's text.
  if (prompt.empty() || !prompt.back().from_template) {
    return ThinkingStage::kBefore;
  }
  const absl::string_view tail =
      absl::StripTrailingAsciiWhitespace(prompt.back().text);
  if (absl::EndsWith(tail, tags.close)) return ThinkingStage::kOver;
  // Elsewhere the tag is a mention: "Put your reasoning in <think> tags."
  return absl::EndsWith(tail, tags.open) ? ThinkingStage::kInside
                                         : ThinkingStage::kBefore;
}

}  // namespace foretoken
