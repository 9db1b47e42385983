// A client of one Draft stream, and a trie drafter in this process over real
// gRPC.
#ifndef FORETOKEN_TESTS_INTEGRATION_TRIE_DRAFTER_DRAFT_CLIENT_H_
#define FORETOKEN_TESTS_INTEGRATION_TRIE_DRAFTER_DRAFT_CLIENT_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "foretoken/v1/trie_drafter.grpc.pb.h"
#include "services/trie_drafter/config.h"
#include "tests/support/metric_samples.h"

namespace foretoken::testing {

inline DraftOpen OpenOf(const std::string& mode, std::vector<TokenId> tokens,
                        const std::string& scope = "") {
  DraftOpen open;
  open.prompt_length = static_cast<int64_t>(tokens.size());
  open.tokens = std::move(tokens);
  open.mode = *Mode::Parse(mode);
  open.cache_scope = scope;
  open.request_id = "test";
  return open;
}

inline DraftRound RoundOf(int64_t length, std::vector<TokenId> committed,
                          int max_nodes = 16) {
  DraftRound round;
  round.length = length;
  round.committed = std::move(committed);
  round.max_nodes = max_nodes;
  return round;
}

class DraftClient {
 public:
  explicit DraftClient(v1::TrieDrafter::Stub& stub) {
    rpc::PrepareCall(context_, absl::Now() + absl::Seconds(120), "");
    stream_ = stub.Draft(&context_);
  }
  ~DraftClient() {
    context_.TryCancel();
    if (!finished_) stream_->Finish();
  }

  bool Send(const v1::DraftRequest& request) { return stream_->Write(request); }
  bool Send(const DraftOpen& open) {
    v1::DraftRequest request;
    EXPECT_TRUE(rpc::ToProto(open, request.mutable_open()).ok());
    return Send(request);
  }
  bool Send(const DraftRound& round) {
    v1::DraftRequest request;
    rpc::ToProto(round, request.mutable_round());
    return Send(request);
  }

  // The next answer, or the status that the call ended with.
  absl::StatusOr<DraftAnswer> Receive() {
    v1::DraftResponse response;
    if (stream_->Read(&response)) return rpc::FromProto(response);
    const absl::Status status = Finish();
    return status.ok() ? absl::OutOfRangeError("the call has ended") : status;
  }
  absl::StatusOr<DraftAnswer> Ask(const DraftRound& round) {
    Send(round);
    return Receive();
  }

  void Cancel() { context_.TryCancel(); }
  void HalfClose() { stream_->WritesDone(); }
  absl::Status Finish() {
    finished_ = true;
    return rpc::FromGrpcStatus(stream_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DraftRequest, v1::DraftResponse>>
      stream_;
  bool finished_ = false;
};

struct TestTrieDrafter {
  metrics::Registry registry;
  std::unique_ptr<trie_drafter::TrieDrafterServer> service;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<v1::TrieDrafter::Stub> stub;

  double Sample(const std::string& sample) const {
    return metrics::SampleValue(registry.Text(), sample).value_or(-1);
  }
};

inline std::unique_ptr<TestTrieDrafter> StartTrieDrafter(
    trie_drafter::TrieDrafterService options = {}) {
  auto started = std::make_unique<TestTrieDrafter>();
  auto service = options.Make(started->registry);
  EXPECT_TRUE(service.ok()) << service.status();
  started->service = *std::move(service);
  rpc::ServerOptions listen;
  listen.listen = {"127.0.0.1:0"};
  auto server = rpc::Server::Start(listen, {started->service.get()});
  EXPECT_TRUE(server.ok()) << server.status();
  started->server = *std::move(server);
  const auto channel =
      rpc::CreateChannel(started->server->addresses().at(0), {});
  EXPECT_TRUE(channel.ok()) << channel.status();
  started->stub = v1::TrieDrafter::NewStub(*channel);
  return started;
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_INTEGRATION_TRIE_DRAFTER_DRAFT_CLIENT_H_
