// The normalizer of a tokenizer.json: Unicode normal forms, Prepend, Replace.
//
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_TEXT_NORMALIZER_H_
#define FORETOKEN_COMMON_TEXT_TEXT_NORMALIZER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"

namespace foretoken {

class TextNormalizer {
 public:
  // `field`: the value of "normalizer". InvalidArgument names the unsupported
  // part, or says by how much too long a text may become.
  static absl::StatusOr<TextNormalizer> Create(const Json& field);

  // `text` must be valid UTF-8. The result is at most 33 times as long as the
  // text and what is prepended to it.
  std::string Normalize(absl::string_view text) const;
  bool IsIdentity() const { return steps_.empty(); }

 private:
  struct Step {
    enum Kind { kPrepend, kReplace, kForm };
    Kind kind = kForm;
    size_t form = 0;  // which normal form
    std::string from;
    std::string to;
  };
  // The most bytes that a step makes of one.
  static double Growth(const Step& step);
  absl::Status AddSteps(const Json& field, const std::string& where, int depth);

  std::vector<Step> steps_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_TEXT_NORMALIZER_H_
