// HTTP as the gateway sees it: one request, and the exchange that answers it.
// The server behind these interfaces is adapters/beast_server.h.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_HTTP_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_HTTP_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/byte_budget.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without its query
  HttpHeaders headers;
  std::string body;
  std::string peer;  // the client's address, without its port
  // Memory for the body and what becomes of it; held as long as the request.
  ByteBudget::Share memory;

  // Value of the first header with this name; empty if absent.
  absl::string_view Header(absl::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (absl::EqualsIgnoreCase(key, name)) return value;
    }
    return "";
  }
  // What was read of it lives on.
  void DropBody() {
    body.clear();
    body.shrink_to_fit();
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

// Told what becomes of an answer that takes its time. Called by one thread at a
// time, without locks held.
class HttpObserver {
 public:
  virtual ~HttpObserver() = default;
  // There is room again after Write returned false.
  virtual void OnRoom() = 0;
  // The client went away, or took nothing for too long: the answer will not be
  // sent. Not called after the end of the answer.
  virtual void OnGone() = 0;
};

// The answer to one request: Respond, or StartStream, Write and EndStream. What
// comes after the end, or after the client is gone, is ignored. Thread-safe.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Before the answer begins. Does not keep `observer` alive. False if the
  // client is gone already: `observer` will not be told.
  virtual bool Watch(std::weak_ptr<HttpObserver> observer) = 0;
  // The client is gone: the answer will not be sent.
  virtual bool gone() = 0;

  virtual void Respond(HttpResponse response) = 0;

  // The body of `head` is the beginning of the stream.
  virtual void StartStream(HttpResponse head) = 0;
  // Queues `bytes`. False if more is queued than a client should owe: wait for
  // OnRoom before writing more; the bytes are queued nevertheless.
  virtual bool Write(absl::string_view bytes) = 0;
  virtual void EndStream() = 0;

  // Before the end of an answer: memory that counts as taken until the answer
  // has been sent, or the client is gone.
  virtual void HoldUntilSent(ByteBudget::Share memory) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called on a thread that serves other connections too: returns soon.
  virtual void Handle(HttpRequest request,
                      std::shared_ptr<HttpExchange> exchange) = 0;

  // Both are asked about a request whose body has not arrived.
  //
  // The owner of the memory that the body takes. Nullopt if the request is
  // refused whatever its body is: Handle gets it without one.
  virtual std::optional<std::string> BodyOwner(const HttpRequest& head) const {
    return head.peer;
  }
  // Headers of an answer that the server gives in the handler's place.
  virtual HttpHeaders HeadersOfRefusal(const HttpRequest& /*head*/) const {
    return {};
  }
  // The body of such an answer. `head` is what was read of it.
  virtual std::string BodyOfRefusal(const HttpRequest& /*head*/,
                                    const ApiError& error) const {
    return error.Json();
  }
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_HTTP_H_
