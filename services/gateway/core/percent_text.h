// Percent-encoding in the path of a URL (RFC 3986, section 2.1).
//
// Thread-safe: a function without state.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_PERCENT_TEXT_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_PERCENT_TEXT_H_

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace foretoken::gateway {

// `text` with each "%XX" as its byte; a "%" without two hexadecimal digits
// stays.
inline std::string PercentDecoded(absl::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    if (text[0] == '%' && text.size() > 2 && absl::ascii_isxdigit(text[1]) &&
        absl::ascii_isxdigit(text[2])) {
      decoded += absl::HexStringToBytes(text.substr(1, 2));
      text.remove_prefix(3);
    } else {
      decoded += text[0];
      text.remove_prefix(1);
    }
  }
  return decoded;
}

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_PERCENT_TEXT_H_
