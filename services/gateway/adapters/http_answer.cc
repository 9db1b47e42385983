#include "services/gateway/adapters/http_answer.h"

#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/net/http_text.h"

namespace foretoken::gateway::beast_server {
namespace {

// Unsent bytes of an answer from which on its writer has to wait, and those
// down to which it waits.
constexpr size_t kHighWater = size_t{64} << 10;
constexpr size_t kLowWater = size_t{16} << 10;

}  // namespace

bool Exchange::Watch(std::weak_ptr<HttpObserver> observer) {
  absl::MutexLock lock(&mu_);
  observer_ = std::move(observer);
  return !dropped_;
}

bool Exchange::gone() {
  absl::MutexLock lock(&mu_);
  return dropped_;
}

void Exchange::Respond(HttpResponse response) {
  std::shared_ptr<Link> link;
  {
    absl::MutexLock lock(&mu_);
    if (ended_ || begun_) return;
    const bool has_body = response.status != 204;
    AppendHead(response, has_body ? absl::StrCat("Content-Length: ",
                                                 response.body.size(), "\r\n")
                                  : "");
    if (!form_.head) queued_ += response.body;
    link = End();
  }
  if (link != nullptr) link->PostFlush(shared_from_this());
}

void Exchange::StartStream(HttpResponse head) {
  absl::MutexLock lock(&mu_);
  if (ended_ || begun_) return;
  AppendHead(head, form_.chunked ? "Transfer-Encoding: chunked\r\n" : "");
  AppendChunk(head.body);
}

bool Exchange::Write(absl::string_view bytes) {
  std::shared_ptr<Link> link;
  bool room = true;
  {
    absl::MutexLock lock(&mu_);
    if (ended_) return true;
    AppendChunk(bytes);
    SendNow();
    room = queued_.size() + unsent_ < kHighWater;
    if (!room && !std::exchange(waited_for_, true)) {
      flush_posted_ = true;  // tells the connection that it is waited for
      link = link_;
    } else if (!queued_.empty()) {
      link = WantFlush();
    }
  }
  if (link != nullptr) link->PostFlush(shared_from_this());
  return room;
}

void Exchange::EndStream() {
  std::shared_ptr<Link> link;
  {
    absl::MutexLock lock(&mu_);
    if (ended_) return;
    if (form_.chunked && !form_.head) queued_ += "0\r\n\r\n";
    link = End();
  }
  if (link != nullptr) link->PostFlush(shared_from_this());
}

void Exchange::HoldUntilSent(ByteBudget::Share memory) {
  absl::MutexLock lock(&mu_);
  if (!ended_) memory_ = std::move(memory);
}

Exchange::Taken Exchange::Take() {
  absl::MutexLock lock(&mu_);
  Taken taken;
  flush_posted_ = false;
  taken.bytes.swap(queued_);
  unsent_ = taken.bytes.size();
  taken.ended = ended_;
  if (waited_for_ && unsent_ < kLowWater) {
    waited_for_ = false;
    taken.room = true;
  }
  return taken;
}

std::shared_ptr<HttpObserver> Exchange::observer() {
  absl::MutexLock lock(&mu_);
  return observer_.lock();
}

void Exchange::OnSent() {
  absl::MutexLock lock(&mu_);
  memory_.Release();
}

bool Exchange::Drop() {
  absl::MutexLock lock(&mu_);
  const bool open = !ended_;
  dropped_ = true;
  ended_ = true;
  fd_ = -1;
  queued_.clear();
  memory_.Release();
  link_.reset();
  return open;
}

bool Exchange::waited_for() {
  absl::MutexLock lock(&mu_);
  return waited_for_;
}

void Exchange::AppendHead(const HttpResponse& response,
                          absl::string_view length) {
  begun_ = true;
  absl::StrAppend(&queued_, net::StatusLine(response.status), length,
                  "Server: foretoken\r\nConnection: ",
                  form_.keep_alive ? "keep-alive\r\n" : "close\r\n");
  if (!response.content_type.empty()) {
    absl::StrAppend(&queued_, "Content-Type: ", response.content_type, "\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&queued_, name, ": ", value, "\r\n");
  }
  queued_ += "\r\n";
}

void Exchange::AppendChunk(absl::string_view bytes) {
  if (bytes.empty() || form_.head) return;
  if (form_.chunked) absl::StrAppendFormat(&queued_, "%x\r\n", bytes.size());
  absl::StrAppend(&queued_, bytes, form_.chunked ? "\r\n" : "");
}

void Exchange::SendNow() {
  if (fd_ < 0 || unsent_ > 0 || flush_posted_) return;
  const ssize_t sent =
      send(fd_, queued_.data(), queued_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) queued_.erase(0, static_cast<size_t>(sent));
}

std::shared_ptr<Link> Exchange::WantFlush() {
  return std::exchange(flush_posted_, true) ? nullptr : link_;
}

std::shared_ptr<Link> Exchange::End() {
  ended_ = true;
  SendNow();
  std::shared_ptr<Link> link = WantFlush();
  link_.reset();  // the connection keeps the exchange until it is sent
  return link;
}

}  // namespace foretoken::gateway::beast_server
