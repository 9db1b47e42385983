// Scanners of JSON that arrives byte by byte. Lenient: they find where a value
// ends, and do not check its contents.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_TEXT_CHAT_JSON_SCANNER_H_
#define FORETOKEN_COMMON_TEXT_CHAT_JSON_SCANNER_H_

#include <cstdint>
#include <string>

namespace foretoken {

inline bool IsJsonSpace(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

// Finds the end of one value.
class JsonValueScanner {
 public:
  enum class Step : uint8_t {
    kMore,      // the byte is of the value
    kLast,      // it is the value's last
    kEnded,     // the value ended before it
    kMalformed  // it can be of no value
  };
  static constexpr int kMaxDepth = 64;

  // The first byte is the value's first: no space.
  Step Take(char c);

 private:
  enum class Kind : uint8_t { kUnknown, kContainer, kString, kScalar };

  Kind kind_ = Kind::kUnknown;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;  // the byte before it was a backslash
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
