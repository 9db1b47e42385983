// JsonFormat of json_text.h: the formats of JSON Schema as regular expressions.
//
// A text that a format allows is valid by its RFC, and by Python's `jsonschema`
// with every optional checker installed. Some that an RFC allows are left out;
// the comments say which.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/grammar/byte_set.h"
#include "common/grammar/json_text.h"
#include "common/grammar/regex.h"
#include "common/grammar/regex_syntax.h"

namespace foretoken::grammar {
namespace {

std::string Group(absl::string_view pattern) {
  return absl::StrCat("(?:", pattern, ")");
}

// RFC 3339 "full-date", without the year 0000, which Python does not have.
// Every month has 28 days; 29 and 30 are for all but February, 31 for seven
// months, and February 29 for leap years: those that 4 divides, of the
// centuries those that 400 divides.
std::string Date() {
  constexpr absl::string_view kYear =
      "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d{2}|[1-9]\\d{3})";
  constexpr absl::string_view kDayOfMonth =
      "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])"
      "|(?:0[13-9]|1[0-2])-(?:29|30)"
      "|(?:0[13578]|1[02])-31)";
  constexpr absl::string_view kLeapDay =
      "(?:\\d{2}(?:0[48]|[2468][048]|[13579][26])"
      "|(?:0[48]|[2468][048]|[13579][26])00)-02-29";
  return Group(absl::StrCat(kYear, "-", kDayOfMonth, "|", kLeapDay));
}

// RFC 3339 "full-time", without leap seconds: only some days have one, and
// Python has none.
std::string Time() {
  return "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?"
         "(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
}

// RFC 3339, appendix A: units descend without a gap; weeks stand alone.
std::string Duration() {
  constexpr absl::string_view kTime =
      "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)";
  constexpr absl::string_view kDate =
      "(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)";
  return absl::StrCat("P(?:", kDate, "(?:", kTime, ")?|", kTime, "|\\d+W)");
}

constexpr absl::string_view kDecimalByte =
    "(?:25[0-5]|2[0-4]\\d|1\\d{2}|[1-9]?\\d)";

std::string Ipv4() {
  return absl::StrCat("(?:", kDecimalByte, "\\.){3}", kDecimalByte);
}

// RFC 3986 "IPv6address".
std::string Ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last_two =
      Group(absl::StrCat(group, ":", group, "|", Ipv4()));
  std::vector<std::string> forms = {
      absl::StrCat("(?:", group, ":){6}", last_two)};
  // before :: after, with at most seven groups in all.
  for (int after = 7; after >= 0; --after) {
    std::string form;
    const int before = 7 - after;
    if (before > 0) {
      form = absl::StrCat(
          "(?:", group,
          before > 1 ? absl::StrCat("(?::", group, "){0,", before - 1, "}")
                     : "",
          ")?");
    }
    absl::StrAppend(&form, "::");
    if (after >= 2) {
      absl::StrAppend(&form, "(?:", group, ":){", after - 2, "}", last_two);
    } else if (after == 1) {
      absl::StrAppend(&form, group);
    }
    forms.push_back(std::move(form));
  }
  std::string all;
  for (const std::string& form : forms) {
    absl::StrAppend(&all, all.empty() ? "" : "|", form);
  }
  return Group(all);
}

// RFC 1123: labels of at most 63 letters, digits and inner hyphens.
constexpr absl::string_view kLabel =
    "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr int kMaxHostName = 253;

std::string HostName() { return absl::StrCat(kLabel, "(?:\\.", kLabel, ")*"); }

// RFC 3986 and, with `international`, RFC 3987.
class Uri {
 public:
  explicit Uri(bool international) {
    const absl::string_view more =
        international
            ? "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}"
              "\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}"
              "\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}"
              "\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}"
              "\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}"
              "\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}"
            : "";
    const absl::string_view private_use =
        international ? "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}"
                        "\\u{100000}-\\u{10FFFD}"
                      : "";
    plain_ = absl::StrCat("A-Za-z0-9._~!$&'()*+,;=\\-", more);
    pchar_ = Characters(":@");
    const std::string segments = absl::StrCat("(?:/", pchar_, "*)*");
    const std::string host =
        absl::StrCat("(?:\\[(?:", Ipv6(),
                     "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:\\-]+)\\]|",
                     Characters(""), "*)");
    // The authority's path begins with a slash or is empty; without an
    // authority it does not begin with two.
    authority_path_ = absl::StrCat("//(?:", Characters(":"), "*@)?", host,
                                   "(?::\\d*)?", segments);
    absolute_ = absl::StrCat("/(?:", pchar_, "+", segments, ")?");
    segments_ = segments;
    tail_ =
        absl::StrCat("(?:\\?", Characters(absl::StrCat(":@/?", private_use)),
                     "*)?(?:#", Characters(":@/?"), "*)?");
  }

  std::string WithScheme() const {
    return absl::StrCat("[A-Za-z][A-Za-z0-9+.\\-]*:(?:", authority_path_, "|",
                        absolute_, "|", pchar_, "+", segments_, "|)", tail_);
  }
  // The first segment of a relative path has no colon: it would be a scheme.
  std::string Reference() const {
    return absl::StrCat("(?:", WithScheme(), "|(?:", authority_path_, "|",
                        absolute_, "|", Characters("@"), "+", segments_, "|)",
                        tail_, ")");
  }

 private:
  std::string Characters(absl::string_view more) const {
    return absl::StrCat("(?:[", plain_, more, "]|%[0-9A-Fa-f]{2})");
  }

  std::string plain_, pchar_, segments_, authority_path_, absolute_, tail_;
};

// RFC 6570.
std::string UriTemplate() {
  constexpr absl::string_view kPercent = "%[0-9A-Fa-f]{2}";
  constexpr absl::string_view kLiteral =
      "[\\x21\\x23\\x24\\x26\\x28-\\x3B\\x3D\\x3F-\\x5B\\x5D\\x5F\\x61-\\x7A"
      "\\x7E\\u{A0}-\\u{D7FF}\\u{E000}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}"
      "\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}"
      "\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}"
      "\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}"
      "\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}"
      "\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}\\u{F0000}-\\u{FFFFD}"
      "\\u{100000}-\\u{10FFFD}]";
  const std::string name_char = absl::StrCat("(?:\\w|", kPercent, ")");
  const std::string variable = absl::StrCat(name_char, "(?:\\.?", name_char,
                                            ")*", "(?::[1-9]\\d{0,3}|\\*)?");
  return absl::StrCat("(?:", kLiteral, "|", kPercent, "|\\{[+#./;?&]?",
                      variable, "(?:,", variable, ")*\\})*");
}

constexpr absl::string_view kJsonPointer = "(?:/(?:[^~/]|~[01])*)*";

// A dot-atom of RFC 5322 at a host name; quoted local parts and address
// literals are left out. RFC 5321 allows 64 octets before the @.
absl::StatusOr<Expr> Email(bool international, Regexes& regexes) {
  const RegexSyntaxOptions options = {.form = TextForm::kJsonString};
  // RFC 6531 adds every character beyond ASCII; controls and separators are
  // none that an address has.
  const std::string atom =
      absl::StrCat("[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-",
                   international ? "\\p{L}\\p{M}\\p{N}" : "", "]+");
  FORETOKEN_ASSIGN_OR_RETURN(
      const Expr local,
      ParseRegex(absl::StrCat(atom, "(?:\\.", atom, ")*"), options, regexes));
  FORETOKEN_ASSIGN_OR_RETURN(const Expr host, JsonFormat("hostname", regexes));
  const Expr octet = regexes.Bytes(ByteSet::All());
  return regexes.Concat({regexes.And(local, regexes.Repeat(octet, 1, 64)),
                         regexes.Literal("@"), host});
}

absl::StatusOr<std::string> FormatPattern(absl::string_view format) {
  if (format == "date") return Date();
  if (format == "time") return Time();
  if (format == "date-time") return absl::StrCat(Date(), "[Tt]", Time());
  if (format == "duration") return Duration();
  if (format == "ipv4") return Ipv4();
  if (format == "ipv6") return Ipv6();
  if (format == "uuid") {
    return std::string("[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}");
  }
  if (format == "uri") return Uri(false).WithScheme();
  if (format == "uri-reference") return Uri(false).Reference();
  if (format == "iri") return Uri(true).WithScheme();
  if (format == "iri-reference") return Uri(true).Reference();
  if (format == "uri-template") return UriTemplate();
  if (format == "json-pointer") return std::string(kJsonPointer);
  if (format == "relative-json-pointer") {
    return absl::StrCat("(?:0|[1-9]\\d*)(?:#|", kJsonPointer, ")");
  }
  return absl::NotFoundError(absl::StrCat("unknown format \"", format, "\""));
}

}  // namespace

absl::StatusOr<Expr> JsonFormat(absl::string_view format, Regexes& regexes) {
  if (format == "email" || format == "idn-email") {
    return Email(format == "idn-email", regexes);
  }
  const RegexSyntaxOptions options = {.form = TextForm::kJsonString};
  if (format == "hostname") {
    FORETOKEN_ASSIGN_OR_RETURN(const Expr name,
                               ParseRegex(HostName(), options, regexes));
    // The length is a bound on the whole name; the labels have theirs in the
    // pattern.
    return regexes.And(
        name, regexes.Repeat(regexes.Bytes(ByteSet::All()), 1, kMaxHostName));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::string pattern, FormatPattern(format));
  return ParseRegex(pattern, options, regexes);
}

}  // namespace foretoken::grammar
