// Scanners of JSON that arrives byte by byte.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_JSON_SCANNER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_JSON_SCANNER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken {

inline bool IsJsonSpace(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

// Checks one value, RFC 8259, and finds its end. Control characters in strings
// are taken as they are: models write line breaks there.
class JsonValueScanner {
 public:
  enum class Step : uint8_t {
    kMore,      // the byte is of the value
    kLast,      // it is the value's last
    kEnded,     // the value ended before it: a number
    kMalformed  // it cannot go on with the value
  };
  static constexpr int kMaxDepth = 64;

  // The first byte is the value's first: no space.
  Step Take(char c);

  // Whether the next byte stands inside a string.
  bool in_string() const { return state_ == State::kString; }

 private:
  enum class State : uint8_t {
    kValue,
    kFirstItem,  // or the end of an array
    kFirstKey,   // or the end of an object
    kKey,
    kColon,
    kBehind,  // a value: a comma or the end of what holds it
    kString,
    kEscape,
    kHex,
    kLiteral,
    kNumber,
  };
  // Parts of a number that were read so far.
  enum class Number : uint8_t {
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kE,
    kSign,
    kExponent,
  };

  Step Begin(char c);  // a value
  Step Open(bool object);
  Step Close();
  Step End();  // of a value
  // False: the byte is not of the number.
  bool TakeDigit(char c);

  State state_ = State::kValue;
  Number number_ = Number::kMinus;
  bool is_key_ = false;        // the string
  int hex_left_ = 0;           // digits of an escape that are still to come
  absl::string_view literal_;  // what is still to come of it
  int depth_ = 0;
  uint64_t objects_ = 0;  // bit d: what was opened at depth d is an object
};

// Decodes the escapes of a string between its quotation marks.
class JsonStringDecoder {
 public:
  // Appends what the byte completes to `out`; lone surrogates become U+FFFD.
  // True for the mark that ends the string. A malformed escape stands for
  // itself.
  bool Take(char c, std::string& out);

 private:
  void Append(uint32_t unit, std::string& out);
  void DropSurrogate(std::string& out);

  bool escaped_ = false;
  int hex_left_ = 0;  // digits of a \u escape that are still to come
  uint32_t unit_ = 0;
  uint32_t high_ = 0;  // a high surrogate that waits for its low one
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_CHAT_JSON_SCANNER_H_
