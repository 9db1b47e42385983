// Text: a string whose bytes remember where they came from.
//
// A chat template mixes its own text, in which control tokens count as such,
// with a request's text, in which they do not. Every operation of the engine on
// strings keeps the origin of each byte, so that the tokenizer can tell the two
// apart.
//
// Representation: the bytes, valid UTF-8, and maximal runs of equal origin in
// ascending order. Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_TEXT_H_
#define FORETOKEN_COMMON_TEXT_JINJA_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace foretoken::jinja {

enum class Origin : uint8_t {
  kTemplate,  // written by the template or the model's files
  kRequest,   // given by the request
};

class Text {
 public:
  struct Run {
    size_t end = 0;  // exclusive; a run begins where the one before ends
    Origin origin = Origin::kTemplate;
  };

  // Memory of a run in a list that doubles.
  static constexpr size_t kRunBytes = 2 * sizeof(Run);

  Text() = default;
  explicit Text(absl::string_view bytes, Origin origin = Origin::kTemplate) {
    Append(bytes, origin);
  }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }
  // Whether any byte is of the request.
  bool FromRequest() const;

  void Append(absl::string_view bytes, Origin origin);
  void Append(const Text& other) { Append(other, 0, other.size()); }
  // Appends the bytes [begin, end) of `other`, which is another object.
  void Append(const Text& other, size_t begin, size_t end);
  // Returns the bytes [begin, end).
  Text Slice(size_t begin, size_t end) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;  // the last ends at bytes_.size()
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_TEXT_H_
