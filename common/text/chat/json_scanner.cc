#include "common/text/chat/json_scanner.h"

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/text/utf8.h"

namespace foretoken {
namespace {

bool IsScalarByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '+' ||
         c == '-' || c == '.';
}

}  // namespace

JsonValueScanner::Step JsonValueScanner::Take(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (kind_ == Kind::kString) return Step::kLast;
    }
    return Step::kMore;
  }
  if (c == '"' && (kind_ == Kind::kUnknown || kind_ == Kind::kContainer)) {
    in_string_ = true;
    if (kind_ == Kind::kUnknown) kind_ = Kind::kString;
    return Step::kMore;
  }
  if (kind_ == Kind::kUnknown && IsScalarByte(c)) {
    kind_ = Kind::kScalar;
    return Step::kMore;
  }
  if (kind_ == Kind::kScalar) {
    return IsScalarByte(c) ? Step::kMore : Step::kEnded;
  }
  if (c == '{' || c == '[') {
    kind_ = Kind::kContainer;
    return ++depth_ > kMaxDepth ? Step::kMalformed : Step::kMore;
  }
  if (kind_ == Kind::kUnknown) return Step::kMalformed;
  if (c == '}' || c == ']') return --depth_ == 0 ? Step::kLast : Step::kMore;
  return IsScalarByte(c) || IsJsonSpace(c) || c == ',' || c == ':'
             ? Step::kMore
             : Step::kMalformed;
}

void JsonStringDecoder::DropSurrogate(std::string& out) {
  if (high_ != 0) out += kReplacementCharacter;
  high_ = 0;
}

void JsonStringDecoder::Append(uint32_t unit, std::string& out) {
  if (unit >= 0xDC00 && unit < 0xE000 && high_ != 0) {
    AppendUtf8(0x10000 + ((high_ - 0xD800) << 10) + (unit - 0xDC00), out);
    high_ = 0;
    return;
  }
  DropSurrogate(out);
  if (unit >= 0xD800 && unit < 0xDC00) {
    high_ = unit;
  } else if (unit >= 0xDC00 && unit < 0xE000) {
    out += kReplacementCharacter;
  } else {
    AppendUtf8(unit, out);
  }
}

bool JsonStringDecoder::Take(char c, std::string& out) {
  if (hex_left_ > 0) {
    if (absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
      const int digit = absl::ascii_isdigit(static_cast<unsigned char>(c))
                            ? c - '0'
                            : absl::ascii_tolower(c) - 'a' + 10;
      unit_ = unit_ * 16 + static_cast<uint32_t>(digit);
      if (--hex_left_ == 0) Append(unit_, out);
      return false;
    }
    hex_left_ = 0;  // the escape is cut short; the byte counts for itself
  }
  if (escaped_) {
    escaped_ = false;
    if (c == 'u') {
      hex_left_ = 4;
      unit_ = 0;
      return false;
    }
    DropSurrogate(out);
    constexpr absl::string_view kFrom = "bfnrt";
    constexpr absl::string_view kTo = "\b\f\n\r\t";
    const size_t simple = kFrom.find(c);
    out.push_back(simple == absl::string_view::npos ? c : kTo[simple]);
    return false;
  }
  if (c == '\\') {
    escaped_ = true;
    return false;
  }
  DropSurrogate(out);
  if (c == '"') return true;
  out.push_back(c);
  return false;
}

}  // namespace foretoken
