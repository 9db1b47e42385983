#include "common/text/jinja/text.h"

#include <algorithm>

namespace foretoken::jinja {

bool Text::FromRequest() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) {
    return run.origin == Origin::kRequest;
  });
}

void Text::Append(absl::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_.append(bytes.data(), bytes.size());
  // Neighbours with one origin share a run, so that most texts have a single
  // one.
  if (runs_.empty() || runs_.back().origin != origin) {
    runs_.push_back({0, origin});
  }
  runs_.back().end = bytes_.size();
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  const absl::string_view bytes = other.bytes_;
  // The ends of runs ascend: the first beyond `begin` holds the byte there.
  auto run =
      std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                       [](size_t at, const Run& r) { return at < r.end; });
  while (begin < end) {
    const size_t stop = std::min(end, run->end);
    Append(bytes.substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  Text slice;
  slice.Append(*this, begin, end);
  return slice;
}

}  // namespace foretoken::jinja
