#include "tests/support/http_collector.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace foretoken::testing {

HttpCollector::HttpCollector(int status) : status_(status) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FORETOKEN_CHECK(listener_ >= 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  FORETOKEN_CHECK(
      bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  FORETOKEN_CHECK(listen(listener_, 16) == 0);
  FORETOKEN_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address),
                              &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Main(); });
}

HttpCollector::~HttpCollector() {
  shutdown(listener_, SHUT_RDWR);  // wakes accept
  thread_.join();
  close(listener_);
  for (const int fd : silent_) close(fd);
}

void HttpCollector::SetStatus(int status) {
  absl::MutexLock lock(&mu_);
  status_ = status;
}

std::vector<std::string> HttpCollector::lines() const {
  absl::MutexLock lock(&mu_);
  return lines_;
}

std::vector<std::string> HttpCollector::bodies() const {
  absl::MutexLock lock(&mu_);
  return bodies_;
}

void HttpCollector::Main() {
  while (true) {
    const int fd = accept(listener_, nullptr, nullptr);
    if (fd < 0) return;
    Serve(fd);
  }
}

void HttpCollector::Serve(int fd) {
  std::string text;
  size_t head = std::string::npos;
  size_t body_bytes = 0;
  while (head == std::string::npos || text.size() < head + 4 + body_bytes) {
    char buffer[4096];
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (head != std::string::npos) continue;
    head = text.find("\r\n\r\n");
    for (const absl::string_view line :
         absl::StrSplit(text.substr(0, head), "\r\n")) {
      const std::vector<std::string> words = absl::StrSplit(line, ": ");
      if (words[0] == "Content-Length") {
        FORETOKEN_CHECK(absl::SimpleAtoi(words.at(1), &body_bytes));
      }
    }
  }
  absl::MutexLock lock(&mu_);
  if (status_ == 0) {
    silent_.push_back(fd);
    return;
  }
  if (head != std::string::npos) {
    lines_.push_back(text.substr(0, text.find("\r\n")));
    bodies_.push_back(text.substr(head + 4));
  }
  const std::string answer = absl::StrCat(
      "HTTP/1.1 ", status_, " Answer\r\nContent-Length: 2\r\n\r\n{}");
  send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);  // it may be gone
  close(fd);
}

}  // namespace foretoken::testing
