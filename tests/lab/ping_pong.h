// PingPong: a raw gRPC bidirectional stream that sends bytes of given sizes
// there and back, one message outstanding: the cost of a round trip without any
// work in it.
#ifndef FORETOKEN_TESTS_LAB_PING_PONG_H_
#define FORETOKEN_TESTS_LAB_PING_PONG_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"

namespace foretoken::bench {

// Answers every message of a stream by one of `answer_bytes`. Thread-safe.
class EchoServer {
 public:
  explicit EchoServer(size_t answer_bytes);
  ~EchoServer();

  // Over TCP on loopback, or without sockets.
  std::shared_ptr<grpc::Channel> Channel(bool sockets);

 private:
  class Service;
  std::unique_ptr<Service> service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// One stream, from a thread that sends, sleeps until the answer is there, and
// sends again, as a request's thread does. Owned by one thread.
class PingPong {
 public:
  PingPong(std::shared_ptr<grpc::Channel> channel, size_t request_bytes);
  ~PingPong();

  absl::Duration RoundTrip();

 private:
  class Stream;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace foretoken::bench

#endif  // FORETOKEN_TESTS_LAB_PING_PONG_H_
