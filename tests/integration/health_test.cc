// grpc.health.v1 over time, and reflection.
#include "common/rpc/health.h"

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/rpc/health_service.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kServing = 1;
constexpr int kNotServing = 2;
constexpr int kServiceUnknown = 3;

// A call without generated code: one message out, any number back.
template <typename Request, typename Response>
class Call final : public grpc::ClientBidiReactor<Request, Response> {
 public:
  Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
       Request request)
      : stub_(channel), request_(std::move(request)) {
    stub_.PrepareBidiStreamingCall(&context_, method, {}, this);
    this->StartWriteLast(&request_, grpc::WriteOptions());
    this->StartRead(&response_);
    this->StartCall();
  }
  ~Call() override {
    context_.TryCancel();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&done_));
  }

  // All messages so far, once there are `count` or the call has ended.
  std::vector<Response> Await(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&] { return received_.size() >= count || done_; };
    FORETOKEN_CHECK(
        mu_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(60)));
    return received_;
  }
  grpc::StatusCode AwaitEnd() {
    absl::MutexLock lock(&mu_);
    FORETOKEN_CHECK(
        mu_.AwaitWithTimeout(absl::Condition(&done_), absl::Seconds(60)));
    return code_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      absl::MutexLock lock(&mu_);
      received_.push_back(response_);
    }
    this->StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    absl::MutexLock lock(&mu_);
    code_ = status.error_code();
    done_ = true;
  }

 private:
  grpc::TemplatedGenericStub<Request, Response> stub_;
  grpc::ClientContext context_;
  Request request_;
  Response response_;
  absl::Mutex mu_;
  std::vector<Response> received_;
  bool done_ = false;
  grpc::StatusCode code_ = grpc::StatusCode::OK;
};

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  auto channel = rpc::CreateChannel(address, {});
  FORETOKEN_CHECK(channel.ok());
  return *channel;
}

// grpc.health.v1.Health/Watch: its messages have the wire format of wrappers.
class Watch {
 public:
  Watch(const std::string& address, const std::string& service)
      : Watch(ChannelTo(address), service) {}
  Watch(const std::shared_ptr<grpc::Channel>& channel,
        const std::string& service)
      : call_(channel, "/grpc.health.v1.Health/Watch", [&] {
          google::protobuf::StringValue request;
          request.set_value(service);
          return request;
        }()) {}
  grpc::StatusCode AwaitEnd() { return call_.AwaitEnd(); }
  // Every state so far, once there are `count`.
  std::vector<int> Await(size_t count) {
    std::vector<int> states;
    for (const auto& message : call_.Await(count)) {
      states.push_back(message.value());
    }
    return states;
  }

 private:
  Call<google::protobuf::StringValue, google::protobuf::Int32Value> call_;
};

TEST(HealthWatchTest, SaysWhenVerifiersGoAndComeAndWhenADrainBegins) {
  const TempDir dir;
  TestVerifierOptions verifier_options;
  verifier_options.rpc.listen = {"unix:" + dir.File("v.sock")};
  auto verifier = StartVerifier(verifier_options);
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  const auto orchestrator = StartOrchestrator(config);

  Watch service(orchestrator->address(), "foretoken.v1.Generation");
  Watch whole(orchestrator->address(), "");
  EXPECT_THAT(service.Await(1), ElementsAre(kServing));
  verifier.reset();
  EXPECT_THAT(service.Await(2), ElementsAre(kServing, kNotServing));
  verifier = StartVerifier(verifier_options);
  EXPECT_THAT(service.Await(3), ElementsAre(kServing, kNotServing, kServing));
  EXPECT_TRUE(orchestrator->server->Drain(absl::Minutes(1)));
  EXPECT_THAT(service.Await(4),
              ElementsAre(kServing, kNotServing, kServing, kNotServing));
  EXPECT_THAT(whole.Await(4),
              ElementsAre(kServing, kNotServing, kServing, kNotServing));
}

TEST(HealthWatchTest, AServiceThatIsNotThereIsUnknown) {
  const auto verifier = StartVerifier({});
  Watch watch(verifier->address(), "foretoken.v1.Nobody");
  EXPECT_THAT(watch.Await(1), ElementsAre(kServiceUnknown));
}

TEST(HealthWatchTest, AVerifierThatDrainsIsNotServingAndGivesNoInfo) {
  const auto verifier = StartVerifier({});
  Watch watch(verifier->address(), "foretoken.v1.Verifier");
  EXPECT_THAT(watch.Await(1), ElementsAre(kServing));
  const auto stub = v1::Verifier::NewStub(ChannelTo(verifier->address()));
  // A session holds the drain up, so that the listener is still there.
  grpc::ClientContext session_context;
  const auto session = stub->Verify(&session_context);
  v1::VerifyRequest open;
  open.mutable_open()->add_token_ids(1);
  open.mutable_open()->set_prompt_length(1);
  open.mutable_open()->set_max_length(9);
  ASSERT_TRUE(session->Write(open));
  v1::VerifyResponse response;
  ASSERT_TRUE(session->Read(&response));
  std::thread drain([&] { verifier->server->Drain(absl::Minutes(2)); });
  EXPECT_THAT(watch.Await(2), ElementsAre(kServing, kNotServing));
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;
    v1::GetVerifierInfoResponse info;
    return stub->GetVerifierInfo(&context, {}, &info).error_code() ==
           grpc::StatusCode::UNAVAILABLE;
  }));
  session->WritesDone();
  while (session->Read(&response)) {
  }
  EXPECT_TRUE(session->Finish().ok());
  drain.join();
}

TEST(HealthWatchTest, AConnectionHasALimitAndTakesNoOthersPlace) {
  const auto verifier = StartVerifier({});
  const std::string name = "foretoken.v1.Verifier";
  // Of names that exist and names that do not.
  std::vector<std::unique_ptr<Watch>> watches;
  const auto channel = ChannelTo(verifier->address());
  for (int i = 0; i < rpc::HealthService::kMaxWatches; ++i) {
    watches.push_back(std::make_unique<Watch>(
        channel, i % 2 == 0 ? name : "none" + std::to_string(i)));
    EXPECT_THAT(watches.back()->Await(1),
                ElementsAre(i % 2 == 0 ? kServing : kServiceUnknown));
  }
  EXPECT_EQ(Watch(channel, name).AwaitEnd(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Watch(channel, "none").AwaitEnd(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto other = ChannelTo(verifier->address());
  EXPECT_THAT(Watch(other, name).Await(1), ElementsAre(kServing));
  // Probes go on, and a place that becomes free is given again.
  EXPECT_TRUE(
      *rpc::IsServing(channel, name, MonotonicNow() + absl::Minutes(1)));
  watches.erase(watches.begin());
  EXPECT_TRUE(Eventually([&] {
    return Watch(channel, name).Await(1) == std::vector<int>{kServing};
  }));
  EXPECT_EQ(Watch(channel, std::string(201, 'x')).AwaitEnd(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(HealthWatchTest, ConnectionsThroughASocketFileShareALimit) {
  const TempDir dir;
  TestVerifierOptions options;
  options.rpc.listen = {"unix:" + dir.File("v.sock")};
  options.rpc.max_connections = 64;
  options.rpc.max_connections_per_peer = 16;
  const auto verifier = StartVerifier(options);
  const std::string name = "foretoken.v1.Verifier";
  std::vector<std::unique_ptr<Watch>> watches;
  const auto channel = ChannelTo(verifier->address());
  const auto other = ChannelTo(verifier->address());
  for (int i = 0; i < 16; ++i) {
    watches.push_back(
        std::make_unique<Watch>(i % 2 == 0 ? channel : other, name));
    EXPECT_THAT(watches.back()->Await(1), ElementsAre(kServing));
  }
  for (const auto& full : {channel, other}) {
    EXPECT_EQ(Watch(full, name).AwaitEnd(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

// The reflection service's request {list_services: ""} by hand.
class Reflection {
 public:
  explicit Reflection(const std::string& address)
      : call_(ChannelTo(address),
              "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
              [] {
                const grpc::Slice bytes(std::string("\x3a\x00", 2));
                return grpc::ByteBuffer(&bytes, 1);
              }()) {}
  grpc::StatusCode AwaitEnd() { return call_.AwaitEnd(); }
  std::string Answer() {
    std::string text;
    for (const grpc::ByteBuffer& message : call_.Await(1)) {
      std::vector<grpc::Slice> slices;
      FORETOKEN_CHECK(message.Dump(&slices).ok());
      for (const grpc::Slice& slice : slices) {
        text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      }
    }
    return text;
  }

 private:
  Call<grpc::ByteBuffer, grpc::ByteBuffer> call_;
};

TEST(ReflectionTest, IsOffUnlessAskedFor) {
  TestVerifierOptions options;
  options.rpc.reflection = true;
  const auto open = StartVerifier(options);
  EXPECT_THAT(Reflection(open->address()).Answer(),
              HasSubstr("foretoken.v1.Verifier"));
  // One server's choice is not that of the next.
  const auto closed = StartVerifier({});
  EXPECT_EQ(Reflection(closed->address()).AwaitEnd(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace foretoken::testing
