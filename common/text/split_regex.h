// The regular expressions of tokenizer.json, which are written for Oniguruma
// (Ruby syntax), run by PCRE2.
//
// The two agree on what such files use, with exceptions that Compile handles:
// \s and \d are rewritten as the Unicode sets that Oniguruma means, \uHHHH is
// translated, and constructs with a different meaning or unbounded cost are
// refused (nested classes, line anchors, back references, \w, \b and the like,
// repeated groups, patterns that match the empty string).
//
// Thread-compatible: const methods may be called concurrently, each thread with
// its own Scratch.
#ifndef FORETOKEN_COMMON_TEXT_SPLIT_REGEX_H_
#define FORETOKEN_COMMON_TEXT_SPLIT_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken {

class SplitRegex {
 public:
  struct Range {
    size_t begin = 0;
    size_t end = 0;  // begin == end: no match
  };

  // Buffers for matching, usable with every SplitRegex. Owned by one thread.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class SplitRegex;
    struct Data;
    std::unique_ptr<Data> data_;
  };

  // InvalidArgument quotes the pattern and names the unsupported construct.
  static absl::StatusOr<SplitRegex> Compile(absl::string_view pattern);

  // Matches `text` literally.
  static absl::StatusOr<SplitRegex> CompileLiteral(absl::string_view text);

  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;
  ~SplitRegex();

  // Returns the first match in `text` (valid UTF-8) that begins at or after
  // `from`, which must be a character boundary.
  Range Find(absl::string_view text, size_t from, Scratch& scratch) const;

 private:
  struct Code;
  explicit SplitRegex(std::unique_ptr<Code> code);
  static absl::StatusOr<SplitRegex> CompilePcre(absl::string_view source);

  std::unique_ptr<Code> code_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_SPLIT_REGEX_H_
