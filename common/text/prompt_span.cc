#include "common/text/prompt_span.h"

#include <algorithm>

namespace foretoken {
namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;

// Normalising up to every border is quadratic in their number. Beyond this many
// ranges in one part, the whole part counts as the request's, which only loses
// control tokens.
constexpr size_t kMaxMappedRanges = 64;

// Ranges are in order and disjoint: a binary search.
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

// A model's control tokens are not always marked special: anything in <...> or
// [...] counts as one. For spans, a false positive only means that a request
// cannot spell it.
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
    // Adjacent ranges are merged, so that a binary search finds them.
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

// A normaliser gives no map of offsets. A range of the request is therefore
// bounded from both sides: what precedes it in the normalised text is at least
// the common prefix with the normalised text before it, and likewise after it.
// The ranges found may be too large, never too small.
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
    // Offsets up to `first` are determined by the text before the range, those
    // from `last` on by the text after it.
    const size_t first =
        from == 0 ? 0
                  : CommonPrefix(normalize(part.substr(0, from)), normalized);
    const size_t last =
        to == part.size()
            ? normalized.size()
            : normalized.size() -
                  CommonSuffix(normalize(part.substr(to)), normalized);
    // A range that normalises to nothing still separates what surrounds it: a
    // control token must not be joined across it.
    request_.emplace_back(first, std::max(last, first));
  }
}

bool NormalizedSpans::HasRequest(size_t begin, size_t end) const {
  return std::any_of(request_.begin(), request_.end(), [&](const auto& range) {
    return range.first < end && range.second > begin;
  });
}

}  // namespace foretoken
