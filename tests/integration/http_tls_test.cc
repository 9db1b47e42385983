// The HTTP server's TLS: handshakes, good and hostile, certificates and their
// change, and the ends of connections. What is the same without TLS is tested
// in http_server_test.cc.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/reloaded_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/adapters/tls_sessions.h"
#include "tests/integration/http_server_harness.h"
#include "tests/integration/live_files.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"

namespace foretoken::gateway {
namespace {

using testing::Certificates;
using testing::ClientTls;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::HttpClient;
using testing::LiveFiles;
using testing::MakeCertificates;
using testing::RawConnection;
using ::testing::StartsWith;
using testing::StatusIs;

class HttpTlsTest : public HttpServerHarness, public ::testing::Test {
 protected:
  HttpTlsTest() { UseTls(); }

  // A client with `tls` is let in and served.
  bool Serves(const ClientTls& tls) {
    const HttpClient client(address(), tls);
    if (!client.Handshake()) return false;
    return Answers(client);
  }
  bool Serves() { return Serves(*tls_); }
  // The next request of `client` is answered.
  bool Answers(const HttpClient& client) {
    const size_t before = handler_.size();
    client.Say(Post("{}"));
    if (!Eventually(
            [&] { return handler_.size() > before || client.Closed(); }) ||
        handler_.size() == before) {
      return false;
    }
    HttpResponse response;
    response.body = "answer";
    handler_.exchange(before)->Respond(std::move(response));
    return client.ReadUntil("answer").find("HTTP/1.1 200 ") == 0;
  }
  // The stream of an answer to `client`, watched.
  std::shared_ptr<HttpExchange> Stream(
      const HttpClient& client, const std::shared_ptr<FlagObserver>& watching) {
    const size_t before = handler_.size();
    client.Say(Post("{}"));
    if (!Handled(before + 1)) return nullptr;
    const auto exchange = handler_.exchange(before);
    exchange->Watch(watching);
    exchange->StartStream({});
    exchange->Write("first");
    EXPECT_THAT(client.ReadUntil("first"), HasSubstr("first"));
    return exchange;
  }
};

TEST_F(HttpTlsTest, SpeaksVersions12And13Alone) {
  Start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    ClientTls tls = *tls_;
    tls.max_version = version;
    const HttpClient client(address(), tls);
    ASSERT_TRUE(client.Handshake());
    EXPECT_EQ(SSL_version(client.ssl()), version);
    EXPECT_TRUE(Answers(client));
    EXPECT_TRUE(Answers(client));  // the connection stays
  }
  ClientTls old = *tls_;
  old.max_version = TLS1_1_VERSION;
  EXPECT_FALSE(HttpClient(address(), old).Handshake());
}

// Every check of the files reads the clock first, so that counting reads of the
// clock by thread shows which threads check files.
TEST(TlsSessionsTest, AConnectionLooksAtNoFile) {
  const testing::TempDir dir;
  const Certificates files = MakeCertificates(dir, "root");
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<bool> loaded{false};
  std::atomic<int> looks_here{0}, looks_elsewhere{0};
  const Clock clock = [&] {
    if (loaded)
      ++(std::this_thread::get_id() == here ? looks_here : looks_elsewhere);
    // A later check is always due.
    static std::atomic<int64_t> seconds{0};
    return absl::FromUnixSeconds(seconds += 2);
  };
  const auto sessions =
      beast_server::TlsSessions::Load({files.cert, files.key, files.ca}, clock);
  FORETOKEN_ASSERT_OK(sessions);
  loaded = true;
  for (int i = 0; i < 100; ++i) EXPECT_NE((*sessions)->New(), nullptr);
  EXPECT_EQ(looks_here, 0);
  EXPECT_TRUE(Eventually([&] { return looks_elsewhere > 0; }));
}

TEST_F(HttpTlsTest, TakesNoOldCipher) {
  Start();
  ClientTls tls = *tls_;
  tls.max_version = TLS1_2_VERSION;
  tls.ciphers = "ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA";
  EXPECT_FALSE(HttpClient(address(), tls).Handshake());
  tls.ciphers += ":ECDHE-ECDSA-AES128-GCM-SHA256";
  EXPECT_TRUE(Serves(tls));
}

TEST_F(HttpTlsTest, AgreesOnHttp11) {
  Start();
  ClientTls tls = *tls_;
  tls.protocols = "\x02h2\x08http/1.1";
  const HttpClient client(address(), tls);
  ASSERT_TRUE(client.Handshake());
  const unsigned char* selected = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(client.ssl(), &selected, &size);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(selected), size),
            "http/1.1");
  EXPECT_TRUE(Answers(client));
  tls.protocols = "\x02h2";
  EXPECT_FALSE(HttpClient(address(), tls).Handshake());
}

TEST_F(HttpTlsTest, ResumesNoSession) {
  Start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    ClientTls tls = *tls_;
    tls.max_version = version;
    const HttpClient client(address(), tls);
    ASSERT_TRUE(client.Handshake());
    ASSERT_TRUE(Answers(client));  // tickets would have come before
    EXPECT_EQ(SSL_SESSION_is_resumable(SSL_get0_session(client.ssl())), 0);
  }
}

// --- Handshakes that never end, or are none ----------------------------------

TEST_F(HttpTlsTest, AHandshakeHasTheTimeOfARequest) {
  options_.request_time = absl::Milliseconds(50);
  Start();
  const RawConnection silent(address());
  const RawConnection half(address());
  const std::string hello = HttpClient(address(), *tls_).Hello();
  half.Say(hello.substr(0, hello.size() / 2));
  EXPECT_TRUE(Eventually([&] { return silent.Closed(); }));
  EXPECT_TRUE(Eventually([&] { return half.Closed(); }));
  // A message that goes on and on: every byte of it is in time.
  const RawConnection endless(address());
  endless.Say(std::string("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11));
  EXPECT_TRUE(Eventually([&] { return !endless.Say("x"); }));
  EXPECT_TRUE(Eventually([this] { return observer_.connections == 0; }));
  EXPECT_EQ(handler_.size(), 0u);
}

TEST_F(HttpTlsTest, SlowHandshakesDelayNoOtherClient) {
  options_.threads = 1;
  Start();
  const std::string hello = HttpClient(address(), *tls_).Hello();
  std::vector<RawConnection> slow;
  for (int i = 0; i < 50; ++i) {
    slow.emplace_back(address());
    slow.back().Say(hello.substr(0, static_cast<size_t>(i) * 4));
  }
  EXPECT_TRUE(Serves());
  EXPECT_GE(observer_.connections, 50);
  // They end with the server's work, too.
  server_->BeginDrain();
  EXPECT_TRUE(Eventually([this] { return observer_.connections == 0; }));
}

TEST_F(HttpTlsTest, AClientThatLeavesInTheHandshakeLeavesNothing) {
  Start();
  const std::string hello = HttpClient(address(), *tls_).Hello();
  for (size_t size = 0; size <= hello.size(); size += 10) {
    const RawConnection client(address());
    client.Say(hello.substr(0, size));
  }
  {
    const HttpClient client(address(), *tls_);
    client.raw().Say(client.Hello());
    client.raw().ReadSome();  // the server's part
  }
  EXPECT_TRUE(Eventually([this] { return observer_.connections == 0; }));
  EXPECT_TRUE(Serves());
}

TEST_F(HttpTlsTest, GarbageInsteadOfAHandshakeIsCutOff) {
  Start();
  const std::string hello = HttpClient(address(), *tls_).Hello();
  std::string broken = hello;
  for (size_t i = 5; i < broken.size(); i += 7) broken[i] ^= 0x55;
  for (const std::string& garbage :
       {std::string(100, '\0'), std::string(1000, '\xff'), broken,
        absl::StrCat(hello, std::string(500, 'x')),
        std::string("\x16\x03\x01\xff\xff", 5) + std::string(70000, 'x'),
        std::string("SSH-2.0-OpenSSH_9.2\r\n")}) {
    const RawConnection client(address());
    client.Say(garbage);
    EXPECT_TRUE(Eventually([&] { return client.Closed(); })) << garbage.size();
  }
  EXPECT_TRUE(Eventually([this] { return observer_.connections == 0; }));
  EXPECT_EQ(handler_.size(), 0u);
  EXPECT_TRUE(Serves());
}

// OpenSSL would allocate 128 KiB and wait for the rest.
TEST_F(HttpTlsTest, AHelloOver16KiBIsCutOffAtOnce) {
  options_.request_time = absl::Hours(1);
  Start();
  const std::string large("\x16\x03\x01\x00\x06\x01\x02\x01\x00\x03\x03", 11);
  const RawConnection whole(address());
  whole.Say(large);
  EXPECT_TRUE(Eventually([&] { return whole.Closed(); }));

  // Its first bytes in records of their own.
  const RawConnection split(address());
  for (size_t i = 5; i < large.size(); ++i) {
    split.Say(std::string("\x16\x03\x01\x00\x01", 5) + large[i]);
  }
  EXPECT_TRUE(Eventually([&] { return split.Closed(); }));

  // A second one, which the server asks for: it does not know the group of the
  // key share.
  const HttpClient second(address(), *tls_);
  std::string hello = second.Hello();
  for (const char* place : {"\x1d\x00\x17", "\x1d\x00\x20"}) {
    // In the list of groups, behind it secp256r1; and in the share, 32 bytes.
    const size_t group = hello.find(std::string(place, 3));
    ASSERT_NE(group, std::string::npos);
    hello.replace(group - 1, 2, "\x1a\x1a");
  }
  second.raw().Say(hello);
  EXPECT_THAT(second.raw().ReadSome(), StartsWith("\x16\x03\x03"));
  EXPECT_FALSE(second.Closed());
  second.raw().Say(large);
  EXPECT_TRUE(Eventually([&] { return second.Closed(); }));
}

TEST_F(HttpTlsTest, RenegotiationEndsTheConnection) {
  options_.idle_time = absl::Hours(1);
  Start();
  ClientTls tls = *tls_;
  tls.max_version = TLS1_2_VERSION;
  const HttpClient client(address(), tls);
  ASSERT_TRUE(client.Handshake());
  ASSERT_TRUE(Answers(client));
  ASSERT_EQ(SSL_renegotiate(client.ssl()), 1);
  EXPECT_FALSE(client.Handshake());
  EXPECT_TRUE(Eventually([&] { return client.Closed(); }));
  EXPECT_TRUE(Serves(tls));
}

TEST_F(HttpTlsTest, PlainHttpIsToldToUseTls) {
  Start();
  for (const std::string& request :
       {std::string("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string("DELETE /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        Post(std::string(5000, ' '))}) {
    const RawConnection client(address());
    client.Say(request);
    const std::string said = client.ReadAll();
    EXPECT_THAT(said, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(said, HasSubstr("https://"));
  }
  EXPECT_EQ(handler_.size(), 0u);
}

TEST_F(HttpTlsTest, GarbageBehindAHandshakeEndsTheAnswer) {
  Start();
  const HttpClient client = Connect();
  const auto watching = std::make_shared<FlagObserver>();
  ASSERT_NE(Stream(client, watching), nullptr);
  client.raw().Say(std::string(100, 'x'));
  EXPECT_TRUE(Eventually([&] { return watching->gone.load(); }));
}

// --- The ends of connections -------------------------------------------------

TEST_F(HttpTlsTest, AClientThatLeavesItsStreamEndsTheRequest) {
  Start();
  const std::vector<void (*)(const HttpClient&)> ways = {
      // As browsers leave; half-closed, without and with close_notify.
      [](const HttpClient& client) {
        client.TellTheEnd();
        client.raw().EndSending();
      },
      [](const HttpClient& client) { client.raw().EndSending(); },
      [](const HttpClient& client) { client.TellTheEnd(); }};
  for (const auto& leave : ways) {
    const HttpClient client = Connect();
    const auto watching = std::make_shared<FlagObserver>();
    ASSERT_NE(Stream(client, watching), nullptr);
    leave(client);
    EXPECT_TRUE(Eventually([&] { return watching->gone.load(); }));
  }
  const auto watching = std::make_shared<FlagObserver>();
  {
    const HttpClient client = Connect();
    ASSERT_NE(Stream(client, watching), nullptr);
  }
  EXPECT_TRUE(Eventually([&] { return watching->gone.load(); }));
}

// Where nothing but the end of the connection ends an answer, the client has to
// tell a whole answer from one that was cut off.
TEST_F(HttpTlsTest, OnlyAWholeAnswerEndsWithCloseNotify) {
  Start();
  const auto ask = [&](const HttpClient& client) {
    const size_t before = handler_.size();
    client.Say("GET /v1/models HTTP/1.0\r\n\r\n");
    EXPECT_TRUE(Handled(before + 1));
    const auto exchange = handler_.exchange(before);
    exchange->StartStream({});
    exchange->Write("some");
    EXPECT_THAT(client.ReadUntil("some"), HasSubstr("some"));
    return exchange;
  };
  const HttpClient whole = Connect();
  ask(whole)->EndStream();
  EXPECT_EQ(whole.ReadAll(), "");
  EXPECT_TRUE(whole.ToldTheEnd());

  const HttpClient cut_off = Connect();
  const auto exchange = ask(cut_off);
  server_->Stop();
  EXPECT_EQ(cut_off.ReadAll(), "");
  EXPECT_FALSE(cut_off.ToldTheEnd());
}

TEST_F(HttpTlsTest, RefusalsAndIdleConnectionsEndWithCloseNotify) {
  options_.max_body_bytes = 10;
  Start();
  const HttpClient refused = Connect();
  refused.Say(Post(std::string(11, ' ')));
  EXPECT_THAT(refused.ReadAll(), StartsWith("HTTP/1.1 413 "));
  EXPECT_TRUE(refused.ToldTheEnd());
  options_.idle_time = absl::Milliseconds(50);
  Start();
  const HttpClient idle = Connect();
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_TRUE(idle.ToldTheEnd());
}

// --- Slow readers and both directions at once --------------------------------

// More than the kernel's buffers hold, with new keys of both sides in between:
// the server reads while it cannot write.
TEST_F(HttpTlsTest, ASlowReaderHoldsUpItsWriterAndLosesNothing) {
  Start();
  struct RoomObserver final : public HttpObserver {
    void OnRoom() override { ++rooms; }
    void OnGone() override {}
    std::atomic<int> rooms{0};
  };
  const auto watching = std::make_shared<RoomObserver>();
  const HttpClient client = Connect();
  client.Say(Post("{}", "Connection: close\r\n"));
  ASSERT_TRUE(Handled(1));
  const auto exchange = handler_.exchange(0);
  exchange->Watch(watching);
  exchange->StartStream({});
  exchange->Write("first");
  ASSERT_THAT(client.ReadUntil("5\r\nfirst\r\n"), HasSubstr("200 OK"));
  std::string written, read;
  int waits = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string piece(1000, static_cast<char>('a' + i % 26));
    if (!exchange->Write(piece)) ++waits;
    absl::StrAppend(&written, "3e8\r\n", piece, "\r\n");
    if (i % 1000 == 0) {
      ASSERT_TRUE(client.ChangeKeys());
    }
    while (watching->rooms < waits) {
      if (read.size() == written.size()) continue;
      const std::string some = client.ReadSome();
      ASSERT_NE(some, "");
      read += some;
    }
  }
  EXPECT_GT(waits, 0);
  exchange->EndStream();
  read += client.ReadAll();
  EXPECT_TRUE(client.ToldTheEnd());
  EXPECT_TRUE(read == absl::StrCat(written, "0\r\n\r\n"));
}

// --- Certificates ------------------------------------------------------------

TEST_F(HttpTlsTest, CertificatesAreReadAgainWhenTheyChange) {
  const Certificates& old_files = files_;
  const Certificates new_files = MakeCertificates(dir_, "new");
  LiveFiles live(dir_);
  live.Switch(old_files, "");
  options_.tls_cert = live.cert();
  options_.tls_key = live.key();
  Start();
  ClientTls renewed;
  renewed.ca = new_files.ca;
  const HttpClient before = Connect();
  EXPECT_FALSE(Serves(renewed));
  // A pair that does not match changes nothing.
  Certificates mixed = new_files;
  mixed.key = old_files.key;
  live.Switch(mixed, "");
  const absl::Time changed = MonotonicNow();
  bool stays = true;
  EXPECT_TRUE(Eventually([&] {
    stays = stays && Serves();
    return !stays || MonotonicNow() > changed + 2 * kReloadInterval;
  }));
  EXPECT_TRUE(stays);
  live.Switch(new_files, "");
  EXPECT_TRUE(Eventually([&] { return Serves(renewed); }));
  EXPECT_FALSE(Serves());
  EXPECT_TRUE(Answers(before));
}

TEST_F(HttpTlsTest, ClientsNeedACertificateOfTheirRoots) {
  const Certificates known = MakeCertificates(dir_, "known");
  const Certificates other = MakeCertificates(dir_, "other");
  LiveFiles live(dir_);
  live.Switch(files_, *ReadFile(known.ca));
  options_.tls_client_ca = live.ca();
  Start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    ClientTls tls = *tls_;
    tls.max_version = version;
    EXPECT_FALSE(Serves(tls));
    tls.cert = other.cert;
    tls.key = other.key;
    EXPECT_FALSE(Serves(tls));
    tls.cert = known.cert;
    tls.key = known.key;
    EXPECT_TRUE(Serves(tls));
  }
  // The roots alone change.
  live.Switch(files_, *ReadFile(other.ca));
  ClientTls tls = *tls_;
  tls.cert = other.cert;
  tls.key = other.key;
  EXPECT_TRUE(Eventually([&] { return Serves(tls); }));
  tls.cert = known.cert;
  tls.key = known.key;
  EXPECT_FALSE(Serves(tls));
}

TEST_F(HttpTlsTest, ChainsOfClientsHoldAtMost16KiB) {
  options_.tls_client_ca = files_.ca;
  Start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    ClientTls tls = *tls_;
    tls.max_version = version;
    tls.cert = files_.cert;
    tls.key = files_.key;
    // Serves a client whose chain has `extra` bytes more than its certificate.
    const auto serves = [&](int extra) {
      const HttpClient client(address(), tls);
      X509* own = SSL_get_certificate(client.ssl());
      const int size = i2d_X509(own, nullptr);
      for (int bytes = 0; bytes < extra; bytes += size) {
        EXPECT_EQ(SSL_add1_chain_cert(client.ssl(), own), 1);
      }
      return client.Handshake() && Answers(client);
    };
    EXPECT_TRUE(serves(12 << 10));
    EXPECT_FALSE(serves(16 << 10));
  }
}

TEST_F(HttpTlsTest, OptionsThatDoNotFitAreRefusedAtStart) {
  const auto start = [this](const HttpServerOptions& options) {
    return BeastServer::Start(options, handler_, observer_).status();
  };
  HttpServerOptions options = options_;
  options.tls_key.clear();
  EXPECT_THAT(start(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("together")));
  options = {};
  options.listen = {"127.0.0.1:0"};
  options.tls_client_ca = files_.ca;
  EXPECT_THAT(start(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("--tls-client-ca")));
  options = options_;
  options.tls_key = MakeCertificates(dir_, "other").key;
  EXPECT_THAT(start(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr(options.tls_key)));
  options = options_;
  options.tls_cert = dir_.File("none");
  EXPECT_THAT(start(options), StatusIs(absl::StatusCode::kNotFound,
                                       HasSubstr(options.tls_cert)));
  options = options_;
  options.tls_client_ca = files_.key;
  EXPECT_THAT(start(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr(options.tls_client_ca)));
  // Beyond this machine: TLS, or leave to go without.
  options = options_;
  options.listen = {"0.0.0.0:0"};
  EXPECT_THAT(start(options), testing::IsOk());
  options.tls_cert.clear();
  options.tls_key.clear();
  EXPECT_THAT(start(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("--insecure")));
  options.insecure = true;
  EXPECT_THAT(start(options), testing::IsOk());
}

}  // namespace
}  // namespace foretoken::gateway
