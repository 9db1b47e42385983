// Text of answers of HTTP/1.1. Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_NET_HTTP_TEXT_H_
#define FORETOKEN_COMMON_NET_HTTP_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::net {

// "HTTP/1.1 404 Not Found\r\n"
std::string StatusLine(int status);

// A whole answer, after which the connection ends.
std::string LastAnswer(int status, absl::string_view content_type,
                       absl::string_view body);

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_HTTP_TEXT_H_
