#include "common/text/jinja/lexer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/unicode.h"
#include "common/text/utf8.h"

namespace foretoken::jinja {
namespace {

using Kind = Token::Kind;

// Longest first: the first operator that matches is taken.
constexpr absl::string_view kOperators[] = {
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// Any byte beyond ASCII may be part of a name; Python allows letters only, but
// names that Python would refuse match no variable either.
bool IsNameByte(char c) {
  return absl::ascii_isalnum(c) || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}

// \r\n and \r become \n, as jinja2 reads templates: trimming and output depend
// on it.
std::string NormalizeLineEnds(absl::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  return out;
}

// Alternates between two modes, as jinja2's lexer does: Data copies text up to
// a tag, Inside splits a tag into tokens. Raw and Comment are Data with another
// end.
class Lexer {
 public:
  explicit Lexer(std::string source)
      : buffer_(std::move(source)), source_(buffer_) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) FORETOKEN_RETURN_IF_ERROR(Data());
    Add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status Fail(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }

  void Add(Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  bool Sees(absl::string_view text) const {
    return absl::StartsWith(source_.substr(at_), text);
  }

  void Skip(size_t bytes) {
    if (bytes == 0) return;
    for (size_t end = at_ + bytes; at_ < end; ++at_) {
      if (source_[at_] == '\n') ++line_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void SkipSpaces() {
    while (at_ < source_.size()) {
      const Utf8Step step = NextUtf8(source_.substr(at_));
      if (!IsSpace(step.code_point)) return;
      Skip(step.length);
    }
  }

  // Text up to the next tag, and the tag.
  absl::Status Data() {
    size_t open = at_;
    while (true) {
      open = source_.find('{', open);
      if (open == absl::string_view::npos || open + 1 == source_.size()) {
        AddData(source_.substr(at_));
        Skip(source_.size() - at_);
        return absl::OkStatus();
      }
      // Any other brace is text: templates print JSON.
      const char next = source_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    const char mark = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    AddData(Trimmed(source_.substr(at_, open - at_), sign, mark != '{'));
    Skip(open - at_);
    Skip(sign == '-' || sign == '+' ? 3 : 2);
    if (mark == '#') return Comment();
    if (mark == '{') return Inside(Kind::kPrintBegin, Kind::kPrintEnd, '}');
    if (SkipRawBegin()) return Raw();
    return Inside(Kind::kTagBegin, Kind::kTagEnd, '%');
  }

  void AddData(absl::string_view text) {
    if (!text.empty()) Add(Kind::kData, std::string(text));
  }

  // `text` before a tag, less what the tag strips. `sign` is the character
  // after the tag's opening: '-' strips all white space, '+' nothing.
  absl::string_view Trimmed(absl::string_view text, char sign,
                            bool is_block) const {
    if (sign == '-') {
      size_t end = 0;  // after the last character that is no space
      for (size_t i = 0; i < text.size();) {
        const Utf8Step step = NextUtf8(text.substr(i));
        i += step.length;
        if (!IsSpace(step.code_point)) end = i;
      }
      return text.substr(0, end);
    }
    // lstrip_blocks, which Hugging Face sets: spaces between the beginning of a
    // line and a block are not output.
    if (sign == '+' || !is_block) return text;
    const size_t newline = text.rfind('\n');
    const size_t line = newline == absl::string_view::npos ? 0 : newline + 1;
    // The line began before this text, with a tag or print: something else
    // stands on it.
    if (line == 0 && !line_starting_) return text;
    for (size_t i = line; i < text.size();) {
      const Utf8Step step = NextUtf8(text.substr(i));
      if (!IsSpace(step.code_point)) return text;
      i += step.length;
    }
    return text.substr(0, line);
  }

  // The end of a tag, with what it strips; `close` is "%}" or "#}". False:
  // there is none here.
  bool SkipEnd(absl::string_view close) {
    const bool plus = Sees("+") && close != "}}";
    const bool minus = Sees("-");
    const size_t sign = plus || minus ? 1 : 0;
    if (!absl::StartsWith(source_.substr(at_ + sign), close)) return false;
    Skip(sign + close.size());
    // trim_blocks, which Hugging Face sets, too: a block takes the line end
    // after it, unless it ends in "+%}". A print ("}}") does not.
    if (minus) {
      SkipSpaces();
    } else if (!plus && close != "}}" && Sees("\n")) {
      Skip(1);
    }
    return true;
  }

  absl::Status Comment() {
    const int begin = line_;
    while (at_ < source_.size()) {
      if (SkipEnd("#}")) return absl::OkStatus();
      Skip(1);
    }
    // The beginning of the comment helps more than the end of the template,
    // where the error is found.
    line_ = begin;  // where the reader has to look
    return Fail("missing end of comment tag");
  }

  // After "{%-": whether the tag is `raw`, which is then skipped. Tried by hand
  // because the text after it must not be split into tokens.
  bool SkipRawBegin() {
    size_t i = at_;
    const auto spaces = [&] {
      while (i < source_.size() && absl::ascii_isspace(source_[i])) ++i;
    };
    spaces();
    if (!absl::StartsWith(source_.substr(i), "raw")) return false;
    i += 3;
    spaces();
    const bool strip = absl::StartsWith(source_.substr(i), "-");
    if (strip) ++i;
    if (!absl::StartsWith(source_.substr(i), "%}")) return false;
    Skip(i + 2 - at_);
    if (strip) SkipSpaces();
    return true;
  }

  absl::Status Raw() {
    const int begin = line_;
    for (size_t open = at_;; ++open) {
      open = source_.find("{%", open);
      if (open == absl::string_view::npos) {
        line_ = begin;
        return Fail("missing end of raw directive");
      }
      size_t i = open + 2;
      const char sign = i < source_.size() ? source_[i] : ' ';
      if (sign == '-' || sign == '+') ++i;
      while (i < source_.size() && absl::ascii_isspace(source_[i])) ++i;
      if (!absl::StartsWith(source_.substr(i), "endraw")) continue;
      i += 6;
      while (i < source_.size() && absl::ascii_isspace(source_[i])) ++i;
      const absl::string_view rest = source_.substr(i);
      if (!absl::StartsWith(rest, "%}") && !absl::StartsWith(rest, "-%}") &&
          !absl::StartsWith(rest, "+%}")) {
        continue;
      }
      AddData(Trimmed(source_.substr(at_, open - at_), sign, true));
      Skip(i - at_);
      SkipEnd("%}");
      return absl::OkStatus();
    }
  }

  // The tokens of a tag, up to its end.
  absl::Status Inside(Kind begin, Kind end, char close) {
    Add(begin, "");
    const std::string closing = {close, '}'};
    std::string open;  // brackets that are not closed yet, as they close
    while (true) {
      // An end counts only where all brackets are closed: {{ {'a': {}} }}.
      const int line = line_;
      if (open.empty() && SkipEnd(closing)) {
        tokens_.push_back({end, "", line});
        return absl::OkStatus();
      }
      if (at_ == source_.size()) return Fail("unexpected end of template");
      const char c = source_[at_];
      if (IsSpace(NextUtf8(source_.substr(at_)).code_point)) {
        SkipSpaces();
      } else if (absl::ascii_isdigit(c)) {
        Number();
      } else if (IsNameByte(c)) {
        size_t length = 0;
        while (at_ + length < source_.size() &&
               IsNameByte(source_[at_ + length])) {
          ++length;
        }
        Add(Kind::kName, std::string(source_.substr(at_, length)));
        Skip(length);
      } else if (c == '\'' || c == '"') {
        FORETOKEN_RETURN_IF_ERROR(String(c));
      } else {
        FORETOKEN_RETURN_IF_ERROR(Operator(open));
      }
    }
  }

  absl::Status Operator(std::string& open) {
    for (const absl::string_view op : kOperators) {
      if (!Sees(op)) continue;
      if (op == "(") open.push_back(')');
      if (op == "[") open.push_back(']');
      if (op == "{") open.push_back('}');
      if (op == ")" || op == "]" || op == "}") {
        if (open.empty() || open.back() != op[0]) {
          return Fail(absl::StrCat("unexpected '", op, "'"));
        }
        open.pop_back();
      }
      Add(Kind::kOperator, std::string(op));
      Skip(op.size());
      return absl::OkStatus();
    }
    return Fail(
        absl::StrCat("unexpected character '", source_.substr(at_, 1), "'"));
  }

  // Digits, with single underscores between them.
  size_t Digits(size_t i) const {
    const auto is_digit = [&](size_t at) {
      return at < source_.size() && absl::ascii_isdigit(source_[at]);
    };
    while (is_digit(i) || (i > at_ && i < source_.size() && source_[i] == '_' &&
                           is_digit(i - 1) && is_digit(i + 1))) {
      ++i;
    }
    return i;
  }

  void Number() {
    Kind kind = Kind::kInteger;
    size_t end = 0;
    const char mark =
        at_ + 1 < source_.size() ? absl::ascii_tolower(source_[at_ + 1]) : ' ';
    if (source_[at_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      end = at_ + 2;
      while (end < source_.size() &&
             (absl::ascii_isxdigit(source_[end]) || source_[end] == '_')) {
        ++end;
      }
    } else {
      end = Digits(at_);
      // A dot belongs to a number only if no dot precedes the number: x.0.1 is
      // two indices, not x[0.1].
      const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
      if (!after_dot && end < source_.size() && source_[end] == '.' &&
          Digits(end + 1) > end + 1) {
        kind = Kind::kFloat;
        end = Digits(end + 1);
      }
      if (!after_dot && end < source_.size() &&
          absl::ascii_tolower(source_[end]) == 'e') {
        size_t power = end + 1;
        if (power < source_.size() &&
            (source_[power] == '+' || source_[power] == '-')) {
          ++power;
        }
        if (Digits(power) > power) {
          kind = Kind::kFloat;
          end = Digits(power);
        }
      }
    }
    std::string text(source_.substr(at_, end - at_));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Add(kind, std::move(text));
    Skip(end - at_);
  }

  absl::Status String(char quote) {
    size_t end = at_ + 1;
    // A backslash hides the next byte, which may be a quote or another
    // backslash. Only the end is searched here; Unescape reads the escapes.
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) {
      return Fail(absl::StrCat("unexpected char ", std::string(1, quote)));
    }
    std::string value;
    if (!Unescape(source_.substr(at_ + 1, end - at_ - 1), value)) {
      return Fail("malformed escape in a string");
    }
    Add(Kind::kString, std::move(value));
    Skip(end + 1 - at_);
    return absl::OkStatus();
  }

  // Python's codec unicode-escape.
  static bool Unescape(absl::string_view text, std::string& out) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out.push_back(text[i]);
        continue;
      }
      const char c = text[++i];
      constexpr absl::string_view kFrom = "abfnrtv\\'\"";
      constexpr absl::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
      const size_t simple = kFrom.find(c);
      if (simple != absl::string_view::npos) {
        out.push_back(kTo[simple]);
      } else if (c == '\n') {
        // A line that goes on.
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t digits = 0;
        while (digits < 3 && i < text.size() && text[i] >= '0' &&
               text[i] <= '7') {
          code = code * 8 + static_cast<uint32_t>(text[i++] - '0');
          ++digits;
        }
        --i;
        AppendUtf8(code, out);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t code = 0;
        if (i + digits >= text.size()) return false;
        for (size_t d = 0; d < digits; ++d) {
          const char hex = text[++i];
          if (!absl::ascii_isxdigit(hex)) return false;
          const int value = absl::ascii_isdigit(hex)
                                ? hex - '0'
                                : absl::ascii_tolower(hex) - 'a' + 10;
          code = code * 16 + static_cast<uint32_t>(value);
        }
        // A lone surrogate has no UTF-8, and a \u pair is not joined by Python
        // either.
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
        AppendUtf8(code, out);
      } else if (c == 'N') {
        return false;  // characters by name
      } else {
        out.push_back('\\');  // not an escape
        out.push_back(c);
      }
    }
    return true;
  }

  const std::string buffer_;
  const absl::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  // Whether the last token ended a line; the beginning counts as one.
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  if (!IsValidUtf8(source)) {
    return absl::InvalidArgumentError("line 1: the template is not UTF-8");
  }
  std::string text = NormalizeLineEnds(source);
  // keep_trailing_newline is off in jinja2: one line end at the end is dropped.
  if (absl::EndsWith(text, "\n")) text.pop_back();
  return Lexer(std::move(text)).Run();
}

}  // namespace foretoken::jinja
