// Any bytes from a client of the HTTP server. A request that it hands over has
// a head that no other server would read differently, checked here on the bytes
// themselves; and how they were cut into packets changes nothing.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "services/gateway/adapters/beast_server.h"
#include "services/gateway/adapters/http_connection.h"
#include "services/gateway/core/http.h"

namespace {

using foretoken::gateway::HttpExchange;
using foretoken::gateway::HttpHandler;
using foretoken::gateway::HttpRequest;
using foretoken::gateway::HttpResponse;
using foretoken::gateway::HttpServerObserver;
using foretoken::gateway::HttpServerOptions;
using foretoken::gateway::beast_server::Connection;
using foretoken::gateway::beast_server::MakeConnection;
using foretoken::gateway::beast_server::Shared;

// Less than a client may send ahead of its answers.
constexpr size_t kMaxInput = size_t{16} << 10;

class Recorder final : public HttpHandler {
 public:
  void Handle(HttpRequest request,
              std::shared_ptr<HttpExchange> exchange) override {
    request.memory.Release();  // the requests outlive the server
    requests.push_back(std::move(request));
    HttpResponse response;
    response.body = "{}";
    exchange->Respond(std::move(response));
  }
  std::vector<HttpRequest> requests;
};

void RunAll(boost::asio::io_context& io) {
  for (int idle = 0; idle < 2;) {
    io.restart();
    idle = io.poll() == 0 ? idle + 1 : 0;
  }
}

// Makes room for more.
void DropAnswers(int fd) {
  char buffer[4096];
  while (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0) {
  }
}

// What becomes of `input` in packets of `packet` bytes.
std::vector<HttpRequest> Serve(absl::string_view input, size_t packet) {
  static boost::asio::io_context& io = *new boost::asio::io_context(1);
  int fds[2];
  FORETOKEN_CHECK(socketpair(AF_UNIX,
                             SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                             fds) == 0);
  HttpServerOptions options;
  // Where exactly a head is too long, the parts decide.
  options.max_header_bytes = 2 * kMaxInput;
  options.max_body_bytes = 1024;
  Recorder recorder;
  HttpServerObserver observer;
  Shared shared(options, recorder, observer);
  bool closed = false;
  {
    std::shared_ptr<Connection> connection = MakeConnection(shared, io, fds[0]);
    FORETOKEN_CHECK(connection != nullptr);
    connection->Start(
        [&closed](const std::shared_ptr<Connection>&) { closed = true; });
    while (!input.empty()) {
      const absl::string_view part = input.substr(0, packet);
      input.remove_prefix(part.size());
      if (send(fds[1], part.data(), part.size(), MSG_NOSIGNAL) < 0) break;
      RunAll(io);
      DropAnswers(fds[1]);
    }
    if (!closed) connection->Close();
  }
  close(fds[1]);
  RunAll(io);
  FORETOKEN_CHECK(closed);
  return std::move(recorder.requests);
}

std::string Describe(const HttpRequest& request) {
  std::string text = absl::StrCat(request.method, " ", request.path, "\n");
  for (const auto& [name, value] : request.headers) {
    absl::StrAppend(&text, name, ": ", value, "\n");
  }
  return absl::StrCat(text, "\n", request.body);
}

bool IsPlain(absl::string_view text) {
  return text.find_first_of(absl::string_view("\r\n\0", 3)) ==
         absl::string_view::npos;
}

// What holds of every request, whatever it looked like.
void CheckRequest(const HttpRequest& request) {
  FORETOKEN_CHECK(IsPlain(request.method) && IsPlain(request.path));
  FORETOKEN_CHECK(request.path.find('?') == std::string::npos);
  FORETOKEN_CHECK(!absl::StartsWithIgnoreCase(request.path, "http://"));
  FORETOKEN_CHECK(!absl::StartsWithIgnoreCase(request.path, "https://"));
  int hosts = 0, lengths = 0, codings = 0;
  for (const auto& [name, value] : request.headers) {
    FORETOKEN_CHECK(!name.empty() && IsPlain(name) && IsPlain(value));
    hosts += absl::EqualsIgnoreCase(name, "Host");
    lengths += absl::EqualsIgnoreCase(name, "Content-Length");
    if (absl::EqualsIgnoreCase(name, "Transfer-Encoding")) {
      ++codings;
      FORETOKEN_CHECK(absl::EqualsIgnoreCase(value, "chunked"));
    }
    if (absl::EqualsIgnoreCase(name, "Content-Encoding")) {
      FORETOKEN_CHECK(value.empty() ||
                      absl::EqualsIgnoreCase(value, "identity"));
    }
  }
  FORETOKEN_CHECK(hosts <= 1);
  FORETOKEN_CHECK(codings <= 1 && (codings == 0 || lengths == 0));
}

// The rules again, on the bytes of the first request, which was handed over.
void CheckFirst(absl::string_view input, const HttpRequest& request) {
  input.remove_prefix(std::min(input.find_first_not_of("\r\n"), input.size()));
  const size_t end = input.find("\r\n\r\n");
  FORETOKEN_CHECK(end != absl::string_view::npos);
  const std::vector<absl::string_view> lines =
      absl::StrSplit(input.substr(0, end), "\r\n");
  const bool is_1_1 = absl::EndsWith(lines[0], " HTTP/1.1");
  FORETOKEN_CHECK(is_1_1 || absl::EndsWith(lines[0], " HTTP/1.0"));
  int hosts = 0;
  int64_t length = -1;
  bool is_chunked = false;
  for (size_t i = 1; i < lines.size(); ++i) {
    const absl::string_view line = lines[i];
    FORETOKEN_CHECK(!absl::StartsWith(line, " ") &&
                    !absl::StartsWith(line, "\t"));
    FORETOKEN_CHECK(line.find('\n') == absl::string_view::npos);
    hosts += absl::StartsWithIgnoreCase(line, "host:");
    is_chunked |= absl::StartsWithIgnoreCase(line, "transfer-encoding:");
    if (!absl::StartsWithIgnoreCase(line, "content-length:")) continue;
    // A list of equal numbers is one of them (RFC 9110 8.6).
    for (const absl::string_view part : absl::StrSplit(line.substr(15), ',')) {
      int64_t number = -1;
      FORETOKEN_CHECK(
          absl::SimpleAtoi(absl::StripAsciiWhitespace(part), &number));
      FORETOKEN_CHECK(number >= 0 && (length < 0 || length == number));
      length = number;
    }
  }
  FORETOKEN_CHECK(hosts == 1 || (hosts == 0 && !is_1_1));
  if (is_chunked) return;
  const absl::string_view body =
      input.substr(end + 4, length < 0 ? 0 : static_cast<size_t>(length));
  FORETOKEN_CHECK(request.body == body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxInput) return 0;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const std::vector<HttpRequest> whole =
      Serve(input, std::max<size_t>(size, 1));
  for (const HttpRequest& request : whole) CheckRequest(request);
  if (!whole.empty()) CheckFirst(input, whole.front());
  // Packets of one byte, or of a few where the input is long.
  const std::vector<HttpRequest> cut = Serve(input, 1 + size / 256);
  // Refusals may differ: of a bad head that comes in parts, the parser looks
  // for the end first.
  FORETOKEN_CHECK(cut.size() == whole.size());
  for (size_t i = 0; i < cut.size(); ++i) {
    FORETOKEN_CHECK(Describe(cut[i]) == Describe(whole[i]));
  }
  return 0;
}
