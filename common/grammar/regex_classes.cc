#include "common/grammar/regex_classes.h"

#include <unicode/uchar.h>
#include <unicode/uset.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/grammar/code_points.h"

namespace foretoken::grammar {
namespace {

struct CloseSet {
  void operator()(USet* set) const { uset_close(set); }
};
using UniqueSet = std::unique_ptr<USet, CloseSet>;

CodePointSet FromIcu(const USet* set) {
  CodePointSet result;
  const int32_t items = uset_getItemCount(set);
  for (int32_t i = 0; i < items; ++i) {
    UChar32 first = 0, last = 0;
    UErrorCode error = U_ZERO_ERROR;
    // Ranges return 0; strings, such as the "ss" of sharp s, their length.
    if (uset_getItem(set, i, &first, &last, nullptr, 0, &error) != 0) continue;
    result.Add(static_cast<uint32_t>(first), static_cast<uint32_t>(last));
  }
  return result;
}

}  // namespace

std::optional<CodePointSet> ClassOfEscape(char letter) {
  CodePointSet set;
  switch (absl::ascii_tolower(static_cast<unsigned char>(letter))) {
    case 'd':
      set.Add('0', '9');
      break;
    case 'w':
      set.Add('0', '9');
      set.Add('A', 'Z');
      set.Add('_');
      set.Add('a', 'z');
      break;
    case 's':
      // WhiteSpace and LineTerminator of ECMA-262: tab, line and form feeds,
      // carriage return, the space separators (Zs) and U+FEFF.
      set.Add(0x09, 0x0D);
      set.Add(0x20);
      set.Add(0xA0);
      set.Add(0x1680);
      set.Add(0x2000, 0x200A);
      set.Add(0x2028, 0x2029);
      set.Add(0x202F);
      set.Add(0x205F);
      set.Add(0x3000);
      set.Add(0xFEFF);
      break;
    default:
      return std::nullopt;
  }
  return absl::ascii_isupper(static_cast<unsigned char>(letter)) ? set.Negated()
                                                                 : set;
}

CodePointSet LineTerminators() {
  CodePointSet set;
  set.Add('\n');
  set.Add('\r');
  set.Add(0x2028, 0x2029);
  return set;
}

std::optional<CodePointSet> UnicodeProperty(absl::string_view name) {
  // Nothing that could end the property and go on with ICU's set notation.
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '=' || c == '-' || c == ' ';
  });
  if (name.empty() || name.size() > 100 || !plain) return std::nullopt;
  std::u16string pattern = u"\\p{";
  pattern.append(name.begin(), name.end());
  pattern += u'}';
  UErrorCode error = U_ZERO_ERROR;
  const UniqueSet set(uset_openPattern(
      pattern.data(), static_cast<int32_t>(pattern.size()), &error));
  if (U_FAILURE(error) || set == nullptr) return std::nullopt;
  return FromIcu(set.get());
}

struct CaseVariants::Cased {
  UniqueSet set{uset_openEmpty()};
};

CaseVariants::CaseVariants()
    : cased_([] {
        auto cased = std::make_unique<Cased>();
        UErrorCode error = U_ZERO_ERROR;
        uset_applyIntPropertyValue(cased->set.get(), UCHAR_CASE_SENSITIVE, 1,
                                   &error);
        return cased;
      }()) {}

CaseVariants::~CaseVariants() = default;

CodePointSet CaseVariants::Close(const CodePointSet& set) const {
  const UniqueSet closed(uset_openEmpty());
  for (const CodePointSet::Range& range : set.Ranges()) {
    uset_addRange(closed.get(), static_cast<UChar32>(range.first),
                  static_cast<UChar32>(range.last));
  }
  // ICU looks at every code point of the set, a million of them in [^a].
  uset_retainAll(closed.get(), cased_->set.get());
  uset_closeOver(closed.get(), USET_CASE_INSENSITIVE);
  CodePointSet result = FromIcu(closed.get());
  result.Add(set);
  return result;
}

}  // namespace foretoken::grammar
