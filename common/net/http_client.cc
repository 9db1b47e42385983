#include "common/net/http_client.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"

namespace foretoken::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using SteadyClock = std::chrono::steady_clock;

// "HTTP/1.1 200" and a blank or the end of the line.
constexpr size_t kStatusBytes = 13;
constexpr size_t kCodeAt = 9;

beast::string_view View(absl::string_view text) {
  return {text.data(), text.size()};
}

absl::Status StatusOf(absl::string_view step, const error_code& error) {
  if (!error) return absl::OkStatus();
  if (error == beast::error::timeout) {
    return absl::DeadlineExceededError(absl::StrCat(step, ": not in time"));
  }
  return absl::UnavailableError(absl::StrCat(step, ": ", error.message()));
}

// One exchange, step by step, on the caller's thread.
class Exchange {
 public:
  explicit Exchange(SteadyClock::time_point deadline) : deadline_(deadline) {}

  absl::Status Connect(const HttpUrl& url) {
    error_code error;
    const auto addresses =
        tcp::resolver(io_).resolve(url.host, url.port, error);
    FORETOKEN_RETURN_IF_ERROR(StatusOf(url.host, error));
    auto untried = static_cast<int64_t>(addresses.size());
    for (const auto& each : addresses) {
      stream_.close();  // the attempt before
      // An address that does not answer must not use up the time of the others:
      // each gets an equal part of what is left.
      const auto now = SteadyClock::now();
      stream_.expires_at(now + (deadline_ - now) / untried--);
      stream_.socket().open(each.endpoint().protocol(), error);
      if (error) continue;
      // Before anything else is done: a process may be started meanwhile.
      fcntl(stream_.socket().native_handle(), F_SETFD, FD_CLOEXEC);
      error = Run([&](auto done) {
        stream_.async_connect(each.endpoint(), std::move(done));
      });
      if (!error) break;
    }
    return StatusOf("connect", error);
  }

  absl::Status Send(http::request<http::string_body>& request) {
    stream_.expires_at(deadline_);
    return StatusOf("send", Run([&](auto done) {
                      http::async_write(stream_, request, std::move(done));
                    }));
  }

  // OK for 2xx. The rest of the answer says nothing more: whatever it is, the
  // body was delivered.
  absl::Status ReadAnswer() {
    std::array<char, kStatusBytes> start;
    stream_.expires_at(deadline_);
    FORETOKEN_RETURN_IF_ERROR(StatusOf(
        "answer", Run([&](auto done) {
          asio::async_read(stream_, asio::buffer(start), std::move(done));
        })));
    const absl::string_view line(start.data(), start.size());
    const absl::string_view code = line.substr(kCodeAt, 3);
    const char after = line.back();
    if (!absl::StartsWith(line, "HTTP/1.") || line[kCodeAt - 1] != ' ' ||
        !std::all_of(code.begin(), code.end(), absl::ascii_isdigit) ||
        (after != ' ' && after != '\r' && after != '\n')) {
      return absl::UnavailableError(absl::StrCat(
          "the answer is not HTTP: it begins with ", absl::CHexEscape(line)));
    }
    if (code[0] == '2') return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("the answer is HTTP status ", code));
  }

 private:
  // Waits for what `start` begins; the stream's deadline ends it.
  template <typename Start>
  error_code Run(const Start& start) {
    error_code result;
    start([&result](const error_code& error, auto&&...) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  const SteadyClock::time_point deadline_;
  asio::io_context io_{1};
  beast::tcp_stream stream_{io_};
};

}  // namespace

absl::StatusOr<HttpUrl> HttpUrl::Parse(absl::string_view url,
                                       absl::string_view port,
                                       absl::string_view path) {
  const absl::Status bad =
      absl::InvalidArgumentError("want http://HOST[:PORT][/PATH]");
  if (!absl::ConsumePrefix(&url, "http://")) return bad;
  // The parts go into the request: no blank or control character may end a
  // header line early.
  for (const char c : url) {
    if (c <= ' ' || c > '~') return bad;
  }
  const size_t slash = std::min(url.find('/'), url.size());
  if (slash + 1 < url.size()) path = url.substr(slash);
  const absl::string_view authority = url.substr(0, slash);
  const HostPort parts = SplitHostPort(authority);
  if (!parts.port.empty()) port = parts.port;
  // Without brackets, the last group of an IPv6 address would be the port.
  const bool bare =
      absl::StrContains(parts.host, ':') && !absl::StartsWith(authority, "[");
  if (parts.host.empty() || bare || ParsePort(port).value_or(0) == 0) {
    return bad;
  }
  return HttpUrl{std::string(parts.host), std::string(port), std::string(path)};
}

absl::Status HttpPost(const HttpUrl& url, absl::string_view content_type,
                      std::string body, absl::Duration timeout) {
  http::request<http::string_body> request(http::verb::post, url.path, 11,
                                           std::move(body));
  request.set(http::field::host, JoinHostPort(url.host, url.port));
  request.set(http::field::content_type, View(content_type));
  request.keep_alive(false);
  request.prepare_payload();
  try {
    Exchange exchange(SteadyClock::now() + absl::ToChronoNanoseconds(timeout));
    FORETOKEN_RETURN_IF_ERROR(exchange.Connect(url));
    FORETOKEN_RETURN_IF_ERROR(exchange.Send(request));
    return exchange.ReadAnswer();
  } catch (const boost::system::system_error& error) {  // out of descriptors
    return absl::UnavailableError(error.what());
  }
}

}  // namespace foretoken::net
