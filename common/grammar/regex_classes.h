// The named sets of code points of regular expressions.
//
// Pure; thread-safe.
#ifndef FORETOKEN_COMMON_GRAMMAR_REGEX_CLASSES_H_
#define FORETOKEN_COMMON_GRAMMAR_REGEX_CLASSES_H_

#include <memory>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/grammar/code_points.h"

namespace foretoken::grammar {

// \d, \w, \s and, negated, \D, \W, \S; nullopt for any other letter.
std::optional<CodePointSet> ClassOfEscape(char letter);
// Characters that `.` does not match: the line terminators of ECMA-262.
CodePointSet LineTerminators();
// \p{name}: a general category, a binary property, Script=... and what else ICU
// knows; nullopt if it does not know it.
std::optional<CodePointSet> UnicodeProperty(absl::string_view name);
// Case variants of code points, by ICU's simple case folding.
class CaseVariants {
 public:
  CaseVariants();
  ~CaseVariants();
  CaseVariants(const CaseVariants&) = delete;
  CaseVariants& operator=(const CaseVariants&) = delete;

  // The set with every case variant of its members.
  CodePointSet Close(const CodePointSet& set) const;

 private:
  struct Cased;
  const std::unique_ptr<const Cased> cased_;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_REGEX_CLASSES_H_
