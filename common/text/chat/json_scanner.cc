#include "common/text/chat/json_scanner.h"

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/text/utf8.h"

namespace foretoken {
namespace {

bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}

}  // namespace

// A value has ended: at the top it was the last, else a comma or the end of its
// container follows.
JsonValueScanner::Step JsonValueScanner::End() {
  if (depth_ == 0) return Step::kLast;
  state_ = State::kBehind;
  return Step::kMore;
}

JsonValueScanner::Step JsonValueScanner::Open(bool object) {
  if (depth_ == kMaxDepth) return Step::kMalformed;
  // A bit for each open container, set for objects, in place of a stack.
  const uint64_t bit = uint64_t{1} << depth_++;
  objects_ = object ? objects_ | bit : objects_ & ~bit;
  state_ = object ? State::kFirstKey : State::kFirstItem;
  return Step::kMore;
}

JsonValueScanner::Step JsonValueScanner::Close() {
  --depth_;
  return End();
}

JsonValueScanner::Step JsonValueScanner::Begin(char c) {
  if (c == '{' || c == '[') return Open(c == '{');
  if (c == '"') {
    is_key_ = false;
    state_ = State::kString;
    return Step::kMore;
  }
  for (const absl::string_view literal : {"true", "false", "null"}) {
    if (c != literal[0]) continue;
    literal_ = literal.substr(1);
    state_ = State::kLiteral;
    return Step::kMore;
  }
  if (c != '-' && !IsDigit(c)) return Step::kMalformed;
  number_ = c == '-'   ? Number::kMinus
            : c == '0' ? Number::kZero
                       : Number::kInteger;
  state_ = State::kNumber;
  return Step::kMore;
}

// The grammar of RFC 8259, section 6: no leading zeros, no plus sign, a digit
// before and after the point.
bool JsonValueScanner::TakeDigit(char c) {
  switch (number_) {
    case Number::kMinus:
      if (!IsDigit(c)) return false;
      number_ = c == '0' ? Number::kZero : Number::kInteger;
      return true;
    case Number::kZero:
    case Number::kInteger:
      if (number_ == Number::kInteger && IsDigit(c)) return true;
      if (c == '.') number_ = Number::kPoint;
      if (c == 'e' || c == 'E') number_ = Number::kE;
      return number_ == Number::kPoint || number_ == Number::kE;
    case Number::kPoint:
      if (!IsDigit(c)) return false;
      number_ = Number::kFraction;
      return true;
    case Number::kFraction:
      if (IsDigit(c)) return true;
      if (c != 'e' && c != 'E') return false;
      number_ = Number::kE;
      return true;
    case Number::kE:
      if (c == '+' || c == '-') {
        number_ = Number::kSign;
        return true;
      }
      [[fallthrough]];
    case Number::kSign:
      if (!IsDigit(c)) return false;
      number_ = Number::kExponent;
      return true;
    case Number::kExponent:
      return IsDigit(c);
  }
  return false;
}

JsonValueScanner::Step JsonValueScanner::Take(char c) {
  switch (state_) {
    case State::kString:
      if (c == '\\') state_ = State::kEscape;
      if (c != '"') return Step::kMore;
      if (!is_key_) return End();
      state_ = State::kColon;
      return Step::kMore;
    case State::kEscape:
      if (c == 'u') {
        hex_left_ = 4;
        state_ = State::kHex;
        return Step::kMore;
      }
      state_ = State::kString;
      return absl::string_view("\"\\/bfnrt").find(c) == absl::string_view::npos
                 ? Step::kMalformed
                 : Step::kMore;
    case State::kHex:
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
        return Step::kMalformed;
      }
      if (--hex_left_ == 0) state_ = State::kString;
      return Step::kMore;
    case State::kLiteral:
      if (c != literal_[0]) return Step::kMalformed;
      literal_.remove_prefix(1);
      return literal_.empty() ? End() : Step::kMore;
    case State::kNumber: {
      if (TakeDigit(c)) return Step::kMore;
      const bool whole =
          number_ == Number::kZero || number_ == Number::kInteger ||
          number_ == Number::kFraction || number_ == Number::kExponent;
      if (!whole) return Step::kMalformed;
      // Only the character after a number shows that it has ended; it belongs
      // to the container, or to the text after the value.
      if (End() == Step::kLast) return Step::kEnded;
      return Take(c);
    }
    default:
      break;
  }
  // White space before a top-level value belongs to the caller.
  if (IsJsonSpace(c)) return depth_ == 0 ? Step::kMalformed : Step::kMore;
  const bool in_object =
      depth_ > 0 && (objects_ >> (depth_ - 1) & uint64_t{1}) != 0;
  switch (state_) {
    case State::kFirstItem:
      return c == ']' ? Close() : Begin(c);
    case State::kFirstKey:
    case State::kKey:
      if (c == '}' && state_ == State::kFirstKey) return Close();
      if (c != '"') return Step::kMalformed;
      is_key_ = true;
      state_ = State::kString;
      return Step::kMore;
    case State::kColon:
      state_ = State::kValue;
      return c == ':' ? Step::kMore : Step::kMalformed;
    case State::kBehind:
      if (c == (in_object ? '}' : ']')) return Close();
      state_ = in_object ? State::kKey : State::kValue;
      return c == ',' ? Step::kMore : Step::kMalformed;
    default:
      return Begin(c);
  }
}

// A high surrogate waits for its other half. Alone it has no form in UTF-8 and
// becomes a replacement character.
void JsonStringDecoder::DropSurrogate(std::string& out) {
  if (high_ != 0) out += kReplacementCharacter;
  high_ = 0;
}

// UTF-16 code units of \u escapes: a high surrogate is kept until the next unit
// shows whether it is half of a pair.
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

// Lenient where JsonValueScanner is strict: what it decodes is shown or passed
// on, never parsed again.
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
    // Escapes that JSON does not have stand for their character: models write
    // them, and the text is shown rather than refused.
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
