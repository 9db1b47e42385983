// Certificates and tokens that are replaced while services and clients run.
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/reloaded_file.h"
#include "common/rpc/health.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/certificates.h"
#include "tests/integration/cluster.h"
#include "tests/integration/live_files.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

rpc::ChannelOptions ClientOf(const std::string& ca, const std::string& cert,
                             const std::string& key) {
  rpc::ChannelOptions options;
  options.tls_ca = ca;
  options.tls_cert = cert;
  options.tls_key = key;
  return options;
}

// Whether a new connection with these files is accepted on both sides.
bool Connects(const std::string& address, const rpc::ChannelOptions& options) {
  const auto channel = rpc::CreateChannel(address, options);
  EXPECT_THAT(channel, IsOk());
  return rpc::IsServing(*channel, "", MonotonicNow() + absl::Seconds(20)).ok();
}

// Generates again and again until it is destroyed; no request may fail.
class Load {
 public:
  explicit Load(const WireClient& client)
      : thread_([this, &client] {
          while (!stop_) {
            const Generated got =
                Generate(client, MakeRequest({1, 2, 3}, "off", 5));
            if (!got.status.ok()) ++failed_;
            EXPECT_THAT(got.status, IsOk());
            ++ended_;
          }
        }) {}
  ~Load() {
    stop_ = true;
    thread_.join();
  }
  int ended() const { return ended_; }
  // True once requests that began after this call have ended well.
  bool GoesOn() const {
    const int before = ended_;
    return Eventually([&] { return ended_ > before + 2; }) && failed_ == 0;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> ended_{0}, failed_{0};
  std::thread thread_;
};

TEST(ReloadTest, CertificateAndRootRotateUnderLiveClients) {
  const TempDir dir;
  const Certificates old_files = MakeCertificates(dir, "old");
  const Certificates new_files = MakeCertificates(dir, "new");
  const std::string old_root = *ReadFile(old_files.ca);
  const std::string new_root = *ReadFile(new_files.ca);
  LiveFiles live(dir);
  live.Switch(old_files, old_root);

  TestVerifierOptions options;
  options.rpc.tls_cert = live.cert();
  options.rpc.tls_key = live.key();
  options.rpc.tls_client_ca = live.ca();
  auto verifier = StartVerifier(options);
  const std::string address = verifier->address();
  orchestrator::OrchestratorService config;
  config.verifiers = {address};
  config.verifier_channel = ClientOf(live.ca(), live.cert(), live.key());
  const auto orchestrator = StartOrchestrator(config);
  const auto old_client = ClientOf(old_files.ca, old_files.cert, old_files.key);
  const auto new_client = ClientOf(new_files.ca, new_files.cert, new_files.key);
  EXPECT_TRUE(Connects(address, old_client));
  EXPECT_FALSE(Connects(address, new_client));
  {
    const Load load(*orchestrator->client);
    // Both roots, then the new certificate, then the new root alone.
    live.Switch(old_files, old_root + new_root);
    const auto renewed = ClientOf(old_files.ca, new_files.cert, new_files.key);
    EXPECT_TRUE(Eventually([&] { return Connects(address, renewed); }));
    EXPECT_TRUE(load.GoesOn());
    live.Switch(new_files, old_root + new_root);
    EXPECT_TRUE(Eventually([&] { return Connects(address, new_client); }));
    EXPECT_TRUE(load.GoesOn());
    live.Switch(new_files, new_root);
    const auto outdated = ClientOf(new_files.ca, old_files.cert, old_files.key);
    EXPECT_TRUE(Eventually([&] { return !Connects(address, outdated); }));
    EXPECT_TRUE(Connects(address, new_client));
    EXPECT_TRUE(load.GoesOn());
  }
  // The orchestrator, started with the old root, connects to a verifier that
  // has only ever seen the new one.
  verifier.reset();
  options.rpc.listen = {address};
  verifier = StartVerifier(options);
  EXPECT_TRUE(Eventually([&] {
    return Generate(*orchestrator->client, MakeRequest({1, 2, 3}, "off", 5))
        .status.ok();
  }));
}

TEST(ReloadTest, APairThatDoesNotMatchRefusesNewConnectionsAlone) {
  const TempDir dir;
  const Certificates good = MakeCertificates(dir, "good");
  Certificates bad = good;
  bad.key = MakeCertificates(dir, "other").key;
  const std::string root = *ReadFile(good.ca);
  TestVerifierOptions options;
  options.rpc.tls_cert = bad.cert;
  options.rpc.tls_key = bad.key;
  options.rpc.listen = {"127.0.0.1:0"};
  EXPECT_THAT(rpc::Server::Start(options.rpc, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.key)));

  LiveFiles live(dir);
  live.Switch(good, root);
  options.rpc.tls_cert = live.cert();
  options.rpc.tls_key = live.key();
  const auto verifier = StartVerifier(options);
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  config.verifier_channel.tls_ca = good.ca;
  const auto orchestrator = StartOrchestrator(config);
  const Load load(*orchestrator->client);
  rpc::ChannelOptions client;
  client.tls_ca = good.ca;
  const auto connects = [&] { return Connects(verifier->address(), client); };
  EXPECT_TRUE(connects());
  live.Switch(bad, root);
  EXPECT_TRUE(Eventually([&] { return !connects(); }));
  EXPECT_TRUE(load.GoesOn());
  live.Switch(good, root);
  EXPECT_TRUE(Eventually(connects));
}

TEST(ReloadTest, ATokenRotatesUnderLiveClients) {
  const TempDir dir;
  const std::string old_token = "old-old-old-old-old";
  const std::string new_token = "new-new-new-new-new";
  TestVerifierOptions options;
  options.rpc.token_file = dir.Write("server", old_token + "\n");
  const auto verifier = StartVerifier(options);
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  config.verifier_channel.token_file = dir.Write("client", old_token + "\n");
  const auto orchestrator = StartOrchestrator(config);
  const auto accepts = [&](const std::string& token) {
    rpc::ChannelOptions client;
    client.token_file = dir.Write("probe", token + "\n");
    const auto channel = rpc::CreateChannel(verifier->address(), client);
    const auto stub = v1::Verifier::NewStub(*channel);
    grpc::ClientContext context;
    rpc::PrepareCall(context, MonotonicNow() + absl::Minutes(1), token);
    v1::GetVerifierInfoResponse response;
    return stub->GetVerifierInfo(&context, {}, &response).ok();
  };
  {
    const Load load(*orchestrator->client);
    FORETOKEN_EXPECT_OK(WriteFileAtomically(options.rpc.token_file,
                                            old_token + "\n" + new_token));
    EXPECT_TRUE(Eventually([&] { return accepts(new_token); }));
    FORETOKEN_EXPECT_OK(
        WriteFileAtomically(config.verifier_channel.token_file, new_token));
    // Calls made from now on until the client's next look still carry the old
    // token, so the server keeps it for longer than that.
    const absl::Time changed = MonotonicNow();
    EXPECT_TRUE(Eventually(
        [&] { return MonotonicNow() > changed + 2 * kReloadInterval; }));
    EXPECT_TRUE(load.GoesOn());
    FORETOKEN_EXPECT_OK(WriteFileAtomically(options.rpc.token_file, new_token));
    EXPECT_TRUE(Eventually([&] { return !accepts(old_token); }));
    EXPECT_TRUE(load.GoesOn());
  }
}

}  // namespace
}  // namespace foretoken::testing
