#include "common/text/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr size_t kMaxPatternBytes = 16384;  // real patterns have a few hundred

// Unicode's White_Space, which is Oniguruma's \s. PCRE2's \s also has U+180E.
constexpr char kWhiteSpace[] =
    "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"
    "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

absl::Status Refuse(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is not supported"));
}

// Rewrites one pattern from Oniguruma to PCRE2, scanning left to right; the
// only state is whether the scan is inside a character class.
class Translator {
 public:
  explicit Translator(absl::string_view pattern) : rest_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!rest_.empty()) {
      FORETOKEN_RETURN_IF_ERROR(in_class_ ? InClass() : Outside());
    }
    if (in_class_) {
      return absl::InvalidArgumentError("unterminated character class");
    }
    return std::move(out_);
  }

 private:
  void Copy(size_t count) {
    out_.append(rest_.data(), count);
    rest_.remove_prefix(count);
  }

  absl::Status Outside() {
    const char c = rest_[0];
    if (c == '\\') return Escape();
    // In Ruby, ^ and $ match at every line; in PCRE2 only at the ends of the
    // text.
    if (c == '^' || c == '$') return Refuse("a line anchor");
    if (c == '[') {
      in_class_ = true;
      Copy(rest_.size() > 1 && rest_[1] == '^' ? 2 : 1);
      if (!rest_.empty() && rest_[0] == ']') return Refuse("an empty class");
      return absl::OkStatus();
    }
    if (c == '(' && rest_.size() > 1 && rest_[1] == '?') return GroupOption();
    const char next = rest_.size() > 1 ? rest_[1] : '\0';
    // Nested repetition can take exponential time.
    if (c == ')' && (next == '*' || next == '+' || next == '{')) {
      return Refuse("a repeated group");
    }
    // "a{2}+" is possessive in PCRE2, a repeat of a repeat in Oniguruma.
    if (c == '}' && (next == '+' || next == '*' || next == '{')) {
      return Refuse("a repeat of a repeat");
    }
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status GroupOption() {
    // Groups with the same meaning in Oniguruma and PCRE2.
    for (const absl::string_view allowed :
         {"(?:", "(?i:", "(?!", "(?=", "(?<!", "(?<=", "(?>"}) {
      if (rest_.substr(0, allowed.size()) == allowed) {
        Copy(allowed.size());
        return absl::OkStatus();
      }
    }
    return Refuse(absl::StrCat("the group ", rest_.substr(0, 4)));
  }

  absl::Status InClass() {
    const char c = rest_[0];
    if (c == '\\') return Escape();
    // Oniguruma has set operations in classes, PCRE2 takes them literally.
    if (c == '[') return Refuse("a class within a class");
    if (rest_.substr(0, 2) == "&&") return Refuse("a class intersection");
    if (c == ']') in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status Escape() {
    if (rest_.size() < 2) return Refuse("a pattern that ends with \\");
    const char c = rest_[1];
    switch (c) {
      case 's':
      case 'S':
        if (c == 'S' && in_class_) return Refuse("\\S within a class");
        absl::StrAppend(&out_,
                        in_class_  ? ""
                        : c == 's' ? "["
                                   : "[^",
                        kWhiteSpace, in_class_ ? "" : "]");
        rest_.remove_prefix(2);
        return absl::OkStatus();
      case 'd':
      case 'D':
        absl::StrAppend(&out_, c == 'd' ? "\\p{Nd}" : "\\P{Nd}");
        rest_.remove_prefix(2);
        return absl::OkStatus();
      case 'u':
        return CodePoint();
      case 'p':
      case 'P':
      case 'x': {  // copy the braces too: they are not a repeat
        const bool braces = rest_.substr(2, 1) == "{";
        const size_t close = braces ? rest_.find('}') : 1;
        if (close == absl::string_view::npos) return Refuse("an open brace");
        Copy(close + 1);
        return absl::OkStatus();
      }
      case 'r':
      case 'n':
      case 't':
      case 'f':
        Copy(2);
        return absl::OkStatus();
      default:
        // Letters and digits may mean something else in PCRE2 (\w, \b, \1).
        if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
          return Refuse(absl::StrCat("\\", rest_.substr(1, 1)));
        }
        Copy(2);
        return absl::OkStatus();
    }
  }

  absl::Status CodePoint() {
    const absl::string_view digits = rest_.substr(2, 4);
    for (const char digit : digits) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) {
        return Refuse("\\u without four hexadecimal digits");
      }
    }
    if (digits.size() != 4) {
      return Refuse("\\u without four hexadecimal digits");
    }
    absl::StrAppend(&out_, "\\x{", digits, "}");
    rest_.remove_prefix(6);
    return absl::OkStatus();
  }

  absl::string_view rest_;
  std::string out_;
  bool in_class_ = false;
};

}  // namespace

struct SplitRegex::Code {
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
  bool jit = false;
};

struct SplitRegex::Scratch::Data {
  Data() {
    // Patterns of unbounded cost were refused at compile time, so a long text
    // must not run into a limit. The interpreter's memory grows only with the
    // text.
    if (limits == nullptr) return;
    pcre2_set_match_limit(limits, std::numeric_limits<uint32_t>::max());
    pcre2_set_depth_limit(limits, std::numeric_limits<uint32_t>::max());
    pcre2_set_heap_limit(limits, std::numeric_limits<uint32_t>::max());
  }
  ~Data() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(limits);
  }
  // One pair: only the whole match is needed.
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* limits = pcre2_match_context_create(nullptr);
};

SplitRegex::Scratch::Scratch() : data_(std::make_unique<Data>()) {
  FORETOKEN_CHECK(data_->match != nullptr && data_->limits != nullptr);
}
SplitRegex::Scratch::~Scratch() = default;

SplitRegex::SplitRegex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;
SplitRegex::~SplitRegex() = default;

absl::StatusOr<SplitRegex> SplitRegex::Compile(absl::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern of ", pattern.size(), " bytes, want at most ",
                     kMaxPatternBytes));
  }
  absl::StatusOr<std::string> source = Translator(pattern).Run();
  absl::StatusOr<SplitRegex> regex =
      source.ok() ? CompilePcre(*source) : source.status();
  if (!regex.ok()) {
    return Annotate(regex.status(), absl::StrCat("\"", pattern, "\""));
  }
  return regex;
}

absl::StatusOr<SplitRegex> SplitRegex::CompileLiteral(absl::string_view text) {
  std::string source;
  for (const char c : text) {
    // Only punctuation has a meaning unescaped; a backslash before it is always
    // literal.
    if (absl::ascii_ispunct(static_cast<unsigned char>(c))) {
      source.push_back('\\');
    }
    source.push_back(c);
  }
  return CompilePcre(source);
}

absl::StatusOr<SplitRegex> SplitRegex::CompilePcre(absl::string_view source) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    return absl::InvalidArgumentError(absl::StrCat(
        "not a regular expression: ", reinterpret_cast<const char*>(message)));
  }
  uint32_t match_empty = 0;
  pcre2_pattern_info(code->code, PCRE2_INFO_MATCHEMPTY, &match_empty);
  // An empty match would not advance the split.
  if (match_empty != 0) return Refuse("a pattern that can match nothing");
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  return SplitRegex(std::move(code));
}

SplitRegex::Range SplitRegex::Find(absl::string_view text, size_t from,
                                   Scratch& scratch) const {
  // The text is valid UTF-8, so PCRE2 need not check it again on every call;
  // pcre2_jit_match never does.
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_data* match = scratch.data_->match;
  // Sends patterns without JIT code to the interpreter.
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit) {
    result = pcre2_jit_match(code_->code, subject, text.size(), from, 0, match,
                             scratch.data_->limits);
  }
  // The JIT has a small fixed stack; the interpreter allocates from the heap.
  if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
    result = pcre2_match(code_->code, subject, text.size(), from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match,
                         scratch.data_->limits);
  }
  // Only memory can run out now. Stopping is better than going on with a
  // different split, and so with different token ids.
  FORETOKEN_CHECK(result >= 0 || result == PCRE2_ERROR_NOMATCH);
  if (result < 0) return {text.size(), text.size()};
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
  return {ends[0], ends[1]};
}

}  // namespace foretoken
