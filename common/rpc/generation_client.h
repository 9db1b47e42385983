// GenerationClient: a Generator over gRPC. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_GENERATION_CLIENT_H_
#define FORETOKEN_COMMON_RPC_GENERATION_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/generation/generator.h"
#include "common/rpc/channel.h"
#include "common/rpc/live_calls.h"
#include "foretoken/v1/generation.grpc.pb.h"

namespace foretoken::rpc {

class GenerationClient final : public Generator {
 public:
  using OnInfo = std::function<void(absl::StatusOr<GeneratorInfo>)>;

  explicit GenerationClient(Endpoint server)
      : stub_(v1::Generation::NewStub(server.channel)),
        peer_(std::move(server)) {}
  // Cancels the calls under way and waits until they are dropped.
  ~GenerationClient() override = default;

  // Errors are those of CreateChannel and ReadToken.
  static absl::StatusOr<std::unique_ptr<GenerationClient>> Connect(
      const std::string& address, const ChannelOptions& options);

  // Asks the server, for at most kInfoTime.
  absl::StatusOr<GeneratorInfo> Info(absl::Time deadline) override;
  bool Ready() override { return IsUp(*peer_.endpoint.channel); }
  // Callers that are authenticated here are named to the server. A listener
  // that wants no more holds up the server by gRPC's flow control.
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) override;
  std::shared_ptr<PendingCall> Tokenize(const Caller& caller, std::string text,
                                        bool add_special_tokens,
                                        absl::Time deadline,
                                        OnTokens done) override;
  std::shared_ptr<PendingCall> Detokenize(const Caller& caller,
                                          std::vector<TokenId> tokens,
                                          absl::Time deadline,
                                          OnText done) override;

  static constexpr absl::Duration kInfoTime = absl::Seconds(30);
  struct InfoQuestion {
    bool wait_for_ready = false;  // rather than fail while the server is down
    std::string principal = {};   // the caller to name; empty: none
  };
  // Asks the server. `done` is called once, never from inside this function.
  void AskInfo(const InfoQuestion& question, absl::Time deadline, OnInfo done);

 private:
  const std::unique_ptr<v1::Generation::Stub> stub_;
  Peer peer_;  // last: its calls use the stub
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_GENERATION_CLIENT_H_
