#include "tests/lab/ping_pong.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/client_callback.h"

namespace foretoken::bench {
namespace {

grpc::ByteBuffer Bytes(size_t size) {
  const grpc::Slice slice(std::string(size, 'x'));
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

class EchoServer::Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(size_t answer_bytes) : answer_(Bytes(answer_bytes)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new Reactor(answer_);
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(const grpc::ByteBuffer& answer) : answer_(answer) {
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) {
        Finish(grpc::Status::OK);
        return;
      }
      written_ = answer_;  // a write takes the bytes away
      StartWrite(&written_);
    }
    void OnWriteDone(bool ok) override {
      if (ok) StartRead(&request_);
      if (!ok) Finish(grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    const grpc::ByteBuffer answer_;
    grpc::ByteBuffer written_;
    grpc::ByteBuffer request_;
  };

  const grpc::ByteBuffer answer_;
};

EchoServer::EchoServer(size_t answer_bytes)
    : service_(std::make_unique<Service>(answer_bytes)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
  FORETOKEN_CHECK(server_ != nullptr);
}

EchoServer::~EchoServer() { server_->Shutdown(); }

std::shared_ptr<grpc::Channel> EchoServer::Channel(bool sockets) {
  if (!sockets) return server_->InProcessChannel(grpc::ChannelArguments());
  return grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_),
                             grpc::InsecureChannelCredentials());
}

class PingPong::Stream final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(const std::shared_ptr<grpc::Channel>& channel, size_t request_bytes)
      : stub_(channel), request_(Bytes(request_bytes)) {
    stub_.PrepareBidiStreamingCall(&context_, "/foretoken.bench.Echo/Echo",
                                   grpc::StubOptions(), this);
    AddHold();
    StartRead(&answer_);
    StartCall();
  }

  absl::Duration RoundTrip() {
    const absl::Time start = absl::Now();
    written_ = request_;
    StartWrite(&written_);
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&answered_));
    answered_ = false;
    StartRead(&answer_);
    // The next write must not begin before this one is done.
    mu_.Await(absl::Condition(&written_done_));
    written_done_ = false;
    return absl::Now() - start;
  }

  void End() {
    StartWritesDone();
    RemoveHold();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&done_));
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    answered_ = ok;
  }
  void OnWriteDone(bool) override {
    absl::MutexLock lock(&mu_);
    written_done_ = true;
  }
  void OnDone(const grpc::Status&) override {
    absl::MutexLock lock(&mu_);
    done_ = true;
  }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  const grpc::ByteBuffer request_;
  grpc::ByteBuffer written_;
  grpc::ByteBuffer answer_;
  absl::Mutex mu_;
  bool answered_ = false;
  bool written_done_ = false;
  bool done_ = false;
};

PingPong::PingPong(std::shared_ptr<grpc::Channel> channel, size_t request_bytes)
    : channel_(std::move(channel)),
      stream_(std::make_unique<Stream>(channel_, request_bytes)) {}

PingPong::~PingPong() { stream_->End(); }

absl::Duration PingPong::RoundTrip() { return stream_->RoundTrip(); }

}  // namespace foretoken::bench
