#include "common/net/http_text.h"

#include <boost/beast/http/status.hpp>

#include "absl/strings/str_cat.h"

namespace foretoken::net {

std::string StatusLine(int status) {
  namespace http = boost::beast::http;
  const auto reason =
      http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  return absl::StrCat("HTTP/1.1 ", status, " ", std::string(reason), "\r\n");
}

std::string LastAnswer(int status, absl::string_view content_type,
                       absl::string_view body) {
  return absl::StrCat(StatusLine(status), "Content-Type: ", content_type,
                      "\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace foretoken::net
