// Exchange: the answer to one request, between its writer and the connection
// that sends it. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_ANSWER_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_ANSWER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/byte_budget.h"
#include "services/gateway/core/http.h"

namespace foretoken::gateway::beast_server {

class Exchange;

// A connection as its exchanges see it.
class Link {
 public:
  virtual ~Link() = default;
  // Sends what the exchange has queued, soon, on the connection's thread.
  virtual void PostFlush(std::shared_ptr<Exchange> exchange) = 0;
};

// The answer to one request. On a plain socket it is sent where it is written,
// as far as the kernel takes it: waking another thread costs more than that.
// The rest is queued here and sent by the connection's thread.
class Exchange final : public HttpExchange,
                       public std::enable_shared_from_this<Exchange> {
 public:
  struct Form {
    bool keep_alive = true;
    bool chunked = true;  // HTTP/1.1
    bool head = false;    // HEAD: no body
    int fd = -1;          // of a plain socket
  };
  // The connection's next step.
  struct Taken {
    std::string bytes;
    bool ended = false;  // these are the last
    bool room = false;   // tell the observer
  };

  Exchange(std::shared_ptr<Link> link, Form form)
      : form_(form), link_(std::move(link)), fd_(form.fd) {}

  bool Watch(std::weak_ptr<HttpObserver> observer) override;
  bool gone() override;
  void Respond(HttpResponse response) override;
  // Sent with the first bytes of the stream.
  void StartStream(HttpResponse head) override;
  bool Write(absl::string_view bytes) override;
  void EndStream() override;
  void HoldUntilSent(ByteBudget::Share memory) override;

  // --- The connection's side -------------------------------------------------

  // Takes what is queued; what was taken before has been sent.
  Taken Take();
  std::shared_ptr<HttpObserver> observer();
  // All of the answer has been sent.
  void OnSent();
  // The client is gone: nothing is queued any more. True if the answer had not
  // been given completely.
  bool Drop();
  // The writer has been told to wait.
  bool waited_for();
  bool keep_alive() const { return form_.keep_alive; }

 private:
  void AppendHead(const HttpResponse& response, absl::string_view length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AppendChunk(absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends what the kernel takes at once, unless the connection's thread is
  // about to send what came before. An error is found by that thread.
  void SendNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Link> WantFlush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Link> End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Form form_;
  absl::Mutex mu_;
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mu_);
  std::weak_ptr<HttpObserver> observer_ ABSL_GUARDED_BY(mu_);
  int fd_ ABSL_GUARDED_BY(mu_);  // open; -1: not here
  std::string queued_ ABSL_GUARDED_BY(mu_);
  size_t unsent_ ABSL_GUARDED_BY(mu_) = 0;  // taken, not known to be sent
  ByteBudget::Share memory_ ABSL_GUARDED_BY(mu_);
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;
  bool flush_posted_ ABSL_GUARDED_BY(mu_) = false;
  bool waited_for_ ABSL_GUARDED_BY(mu_) = false;  // Write returned false
};

}  // namespace foretoken::gateway::beast_server

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_HTTP_ANSWER_H_
