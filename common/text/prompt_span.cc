#include "common/text/prompt_span.h"

#include <algorithm>

namespace foretoken {
namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;

// Normalising up to every border is quadratic in their number: beyond this many
// ranges in one part all of it counts as the request's.
constexpr size_t kMaxMappedRanges = 64;

bool Intersects(const Ranges& ranges, size_t begin, size_t end) {
  const auto behind = std::upper_bound(
      ranges.begin(), ranges.end(), begin,
      [](size_t at, const auto& range) { return at < range.second; });
  return behind != ranges.end() && behind->first < end;
}

size_t CommonPrefix(absl::string_view a, absl::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + size, b.begin()).first -
         a.begin();
}

size_t CommonSuffix(absl::string_view a, absl::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return std::mismatch(a.rbegin(), a.rbegin() + size, b.rbegin()).first -
         a.rbegin();
}

}  // namespace

bool IsControlToken(absl::string_view content, bool special) {
  if (special) return true;
  if (content.size() < 3) return false;
  return (content.front() == '<' && content.back() == '>') ||
         (content.front() == '[' && content.back() == ']');
}

JoinedSpans::JoinedSpans(absl::Span<const PromptSpan> spans) {
  for (const PromptSpan& span : spans) {
    const size_t begin = text_.size();
    text_ += span.text;
    if (span.from_template || span.text.empty()) continue;
    if (!request_.empty() && request_.back().second == begin) {
      request_.back().second = text_.size();
    } else {
      request_.emplace_back(begin, text_.size());
    }
  }
}

bool JoinedSpans::HasRequest(size_t begin, size_t end) const {
  return Intersects(request_, begin, end);
}

NormalizedSpans::NormalizedSpans(const JoinedSpans& spans, size_t begin,
                                 size_t end, absl::string_view normalized,
                                 Normalize normalize) {
  const absl::string_view part =
      absl::string_view(spans.text_).substr(begin, end - begin);
  Ranges ranges;  // of the request, by offsets in `part`
  for (const auto& [from, to] : spans.request_) {
    if (to <= begin || from >= end) continue;
    ranges.emplace_back(std::max(from, begin) - begin,
                        std::min(to, end) - begin);
  }
  if (ranges.size() > kMaxMappedRanges) ranges = {{0, part.size()}};
  for (const auto& [from, to] : ranges) {
    // What the text before the range determines, and the text behind it.
    const size_t first =
        from == 0 ? 0
                  : CommonPrefix(normalize(part.substr(0, from)), normalized);
    const size_t last =
        to == part.size()
            ? normalized.size()
            : normalized.size() -
                  CommonSuffix(normalize(part.substr(to)), normalized);
    // A range that vanished still parts what surrounds it.
    request_.emplace_back(first, std::max(last, first));
  }
}

bool NormalizedSpans::HasRequest(size_t begin, size_t end) const {
  return std::any_of(request_.begin(), request_.end(), [&](const auto& range) {
    return range.first < end && range.second > begin;
  });
}

}  // namespace foretoken
