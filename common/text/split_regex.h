// The regular expressions of tokenizer.json, which are written for Oniguruma
// in Ruby syntax, run by PCRE2.
//
// The two agree on what such files use, with these exceptions, which Compile
// takes care of: \s and \d (rewritten as the Unicode sets that Oniguruma
// means), \uHHHH, and constructs with another meaning or an unbounded cost
// (refused: classes within classes, line anchors, back references, \w, \b and
// the like, repeated groups, patterns that match nothing).
//
// Thread-compatible: const methods may be called concurrently, each thread
// with a Scratch of its own.
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

  // What matching needs; serves every SplitRegex. Owned by one thread.
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

  // InvalidArgument quotes the pattern and says what is not supported.
  static absl::StatusOr<SplitRegex> Compile(absl::string_view pattern);

  // A literal string.
  static absl::StatusOr<SplitRegex> CompileLiteral(absl::string_view text);

  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;
  ~SplitRegex();

  // The first match in `text` (valid UTF-8) that begins at `from` or later,
  // which must be where a character begins.
  Range Find(absl::string_view text, size_t from, Scratch& scratch) const;

 private:
  struct Code;
  explicit SplitRegex(std::unique_ptr<Code> code);
  static absl::StatusOr<SplitRegex> CompilePcre(absl::string_view source);

  std::unique_ptr<Code> code_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_SPLIT_REGEX_H_
