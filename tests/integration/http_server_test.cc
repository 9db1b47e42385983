// The HTTP server with real sockets; what it answers comes when the test says
// so.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/generation/generator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/gateway_service.h"
#include "tests/integration/http_server_harness.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_generator.h"
#include "tests/support/gate.h"

namespace foretoken::gateway {
namespace {

using testing::Eventually;
using testing::FakeGenerator;
using testing::Gate;
using ::testing::HasSubstr;
using testing::HttpClient;
using ::testing::StartsWith;

// Plain, and in TLS.
class HttpServerTest : public HttpServerHarness,
                       public ::testing::TestWithParam<bool> {
 protected:
  HttpServerTest() {
    if (GetParam()) UseTls();
  }
};

INSTANTIATE_TEST_SUITE_P(Sockets, HttpServerTest, ::testing::Bool(),
                         [](const auto& tls) {
                           return tls.param ? "Tls" : "Plain";
                         });

TEST_P(HttpServerTest, WatchTellsThatTheClientIsGone) {
  Start();
  {
    const HttpClient client = Connect();
    client.Say(Post("{}"));
    ASSERT_TRUE(Handled(1));
  }
  ASSERT_TRUE(Eventually([this] { return observer_.connections == 0; }));
  EXPECT_FALSE(handler_.exchange(0)->Watch(std::weak_ptr<HttpObserver>()));
}

TEST_P(HttpServerTest, BytesAfterARequestDoNotHideTheClientsEnd) {
  Start();
  size_t requests = 0;
  for (const std::string& more :
       {std::string("\r\n"),
        std::string("GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"),
        Post(std::string(size_t{40} << 10, ' '))}) {
    const auto watching = std::make_shared<FlagObserver>();
    {
      const HttpClient client = Connect();
      client.Say(absl::StrCat(Post("{}"), more));
      ASSERT_TRUE(Handled(++requests));
      handler_.exchange(requests - 1)->Watch(watching);
    }
    EXPECT_TRUE(Eventually([&] { return watching->gone.load(); }));
  }
  EXPECT_EQ(handler_.size(), requests);
}

TEST_P(HttpServerTest, AClientThatSendsTooFarAheadIsCutOff) {
  Start();
  const HttpClient client = Connect();
  client.Say(Post("{}"));
  ASSERT_TRUE(Handled(1));
  const auto watching = std::make_shared<FlagObserver>();
  handler_.exchange(0)->Watch(watching);
  client.Say(std::string(size_t{100} << 10, '\n'));
  EXPECT_TRUE(Eventually([&] { return watching->gone.load(); }));
}

TEST_P(HttpServerTest, EmptyLinesBetweenRequestsAreSkipped) {
  Start();
  const HttpClient client = Connect();
  for (size_t i = 0; i < 3; ++i) {
    client.Say(absl::StrCat(i == 0 ? "\r\n" : "", Post("{}"), "\r\n"));
    ASSERT_TRUE(Handled(i + 1));
    HttpResponse response;
    response.body = absl::StrCat("answer ", i);
    handler_.exchange(i)->Respond(std::move(response));
    EXPECT_THAT(client.ReadUntil(absl::StrCat("answer ", i)),
                StartsWith("HTTP/1.1 200 OK\r\n"));
  }
}

TEST_P(HttpServerTest, RequestsThatCameAheadAreServedInTheirOrder) {
  Start();
  const HttpClient client = Connect();
  const std::string large(size_t{200} << 10, 'x');
  client.Say(absl::StrCat(Post("first"), Post("second")));
  ASSERT_TRUE(Handled(1));
  handler_.exchange(0)->Respond({});
  ASSERT_TRUE(Handled(2));
  // Piece by piece: the body is in no one read.
  client.Say(absl::StrCat("\r\n", Post(large)).substr(0, 20000));
  handler_.exchange(1)->Respond({});
  client.Say(absl::StrCat("\r\n", Post(large)).substr(20000));
  ASSERT_TRUE(Handled(3));
  EXPECT_EQ(handler_.body(0), "first");
  EXPECT_EQ(handler_.body(1), "second");
  EXPECT_EQ(handler_.body(2), large);
}

TEST_P(HttpServerTest, ABodyWithoutACertainEndIsRefused) {
  Start();
  const std::string inner = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";
  for (const std::string version_and_headers :
       {"1.1\r\nTransfer-Encoding: chunked, identity\r\n",
        "1.1\r\nTransfer-Encoding: gzip\r\n",
        "1.1\r\nTransfer-Encoding: xchunked\r\n",
        "1.1\r\nTransfer-Encoding: gzip, chunked\r\n",
        "1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "1.1\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n",
        "1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n"}) {
    const HttpClient client = Connect();
    client.Say(absl::StrCat("POST /tokenize HTTP/", version_and_headers,
                            "Host: a\r\n\r\n", "0\r\n\r\n", inner));
    const std::string said = client.ReadAll();  // until the server closes
    EXPECT_THAT(said, StartsWith("HTTP/1.1 400 ")) << version_and_headers;
    EXPECT_EQ(said.find("HTTP/1.1 ", 1), std::string::npos) << said;
  }
  EXPECT_EQ(handler_.size(), 0u);
}

TEST_P(HttpServerTest, HeadsThatServersReadDifferentlyAreRefused) {
  Start();
  struct Case {
    std::string head;
    std::string status;
  };
  for (const Case& each : std::vector<Case>{
           {"GET /a HTTP/1.1\r\n\r\n", "400"},
           {"GET /a HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400"},
           {"GET /a HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", "400"},
           {"GET /a HTTP/1.1\r\nHost: a b\r\n\r\n", "400"},
           {"GET /a HTTP/1.1\r\nHost: a/c\r\n\r\n", "400"},
           {"GET /a HTTP/1.1\r\nHost: user@a\r\n\r\n", "400"},
           {"GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer b\r\n"
            "authorization: Bearer c\r\n\r\n",
            "400"},
           {"GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", "400"},
           {"GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\n\t2\r\n\r\n", "400"},
           {"POST /a HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n"
            "Content-Length: 2\r\n\r\n{}",
            "415"},
           {"POST /a HTTP/1.1\r\nHost: a\r\nContent-Encoding: identity\r\n"
            "content-encoding: br\r\nContent-Length: 2\r\n\r\n{}",
            "415"}}) {
    const HttpClient client = Connect();
    client.Say(each.head);
    EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 " + each.status))
        << each.head;
  }
  EXPECT_EQ(handler_.size(), 0u);
}

TEST_P(HttpServerTest, ABodyOfIndentedLinesIsNoFoldedHeader) {
  Start();
  const std::string body = "{\n  \"prompt\": \"a\"\n}";
  const std::string request = Post(body);
  const size_t head = request.find("\r\n\r\n") + 4;
  size_t handled = 0;
  for (size_t split = head - 5; split <= head + 3; ++split) {
    const HttpClient client = Connect();
    client.Say(request.substr(0, split));
    absl::SleepFor(absl::Milliseconds(20));  // so that they arrive apart
    client.Say(request.substr(split));
    ASSERT_TRUE(Handled(++handled)) << split;
    EXPECT_EQ(handler_.body(handled - 1), body);
  }
}

TEST_P(HttpServerTest, ATargetInAbsoluteFormNamesTheHost) {
  Start();
  const HttpClient client = Connect();
  client.Say(
      "GET http://llm.example:81/v1/models?x=1 HTTP/1.1\r\n"
      "Host: other\r\n\r\n");
  ASSERT_TRUE(Handled(1));
  const HttpClient other = Connect();
  other.Say("GET HTTPS://llm.example HTTP/1.1\r\nHost: other\r\n\r\n");
  ASSERT_TRUE(Handled(2));
  EXPECT_EQ(handler_.path(0), "/v1/models");
  EXPECT_EQ(handler_.header(0, "Host"), "llm.example:81");
  EXPECT_EQ(handler_.path(1), "/");
  EXPECT_EQ(handler_.header(1, "Host"), "llm.example");
}

constexpr char kChunked[] =
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    "Expect: 100-continue\r\n\r\n";

TEST_P(HttpServerTest, HeadersAloneTakeNoMemory) {
  options_.max_body_bytes = 36 << 10;
  options_.body_memory = int64_t{1} << 20;  // for one such body
  Start();
  std::vector<HttpClient> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(Connect());
    others.back().Say(i % 2 == 0 ? std::string(kChunked)
                                 : "POST /tokenize HTTP/1.1\r\nHost: a\r\n"
                                   "Content-Length: 36000\r\n"
                                   "Expect: 100-continue\r\n\r\n");
    EXPECT_EQ(others.back().ReadUntil("\r\n\r\n"),
              "HTTP/1.1 100 Continue\r\n\r\n");
  }
  const HttpClient client = Connect();
  client.Say(Post(std::string(30 << 10, ' ')));
  EXPECT_TRUE(Handled(1));
}

TEST_P(HttpServerTest, BodiesTakeMemoryAsTheyArrive) {
  options_.max_body_bytes = 36 << 10;
  options_.body_memory = int64_t{1} << 20;
  Start();
  const std::string body(30 << 10, ' ');
  const auto refused = [&] {
    const HttpClient client = Connect();
    const size_t before = handler_.size();
    client.Say(Post(body));
    EXPECT_TRUE(Eventually(
        [&] { return handler_.size() > before || client.Closed(); }));
    return handler_.size() == before;
  };
  // Both bodies have no room together; whichever arrives first has it.
  EXPECT_TRUE(Eventually([&] {
    const HttpClient other = Connect();
    // Most of it, and not its end.
    other.Say(
        absl::StrCat(kChunked, absl::StrFormat("%x\r\n", body.size()), body));
    return refused();
  }));
  EXPECT_TRUE(Eventually([&] { return !refused(); }));
}

TEST_P(HttpServerTest, ARequestThatIsRefusedAnywayIsAnsweredBeforeItsBody) {
  handler_.known = [](const HttpRequest& head) {
    return head.Header("Authorization") == "Bearer right";
  };
  Start();
  const HttpClient client = Connect();
  client.Say(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
  ASSERT_TRUE(Handled(1));  // without a byte of the body
  EXPECT_EQ(handler_.body(0), "");
  HttpResponse response;
  response.status = 401;
  handler_.exchange(0)->Respond(std::move(response));
  // What still comes is no request.
  client.Say("GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string said = client.ReadAll();
  EXPECT_THAT(said, StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(said, HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(handler_.size(), 1u);

  const HttpClient other = Connect();
  other.Say(Post("{}", "Authorization: Bearer right\r\n"));
  ASSERT_TRUE(Handled(2));
  EXPECT_EQ(handler_.body(1), "{}");
}

TEST_P(HttpServerTest, RefusalsOfTheServerHaveTheHandlersHeaders) {
  options_.max_body_bytes = 10;
  Start();
  const HttpClient client = Connect();
  client.Say(Post(std::string(11, ' '), "Origin: https://a.example\r\n"));
  const std::string said = client.ReadAll();
  EXPECT_THAT(said, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(said, HasSubstr("\r\nOrigin-Was: https://a.example\r\n"));
}

TEST_P(HttpServerTest, AnAnswerThatItsClientHoldsUpIsEnded) {
  options_.send_timeout = absl::Hours(1);
  options_.max_pause = absl::Milliseconds(50);
  Start();
  const HttpClient client = Connect();  // reads nothing
  client.Say(Post("{}"));
  ASSERT_TRUE(Handled(1));
  const auto exchange = handler_.exchange(0);
  const auto watching = std::make_shared<FlagObserver>();
  exchange->Watch(watching);
  exchange->StartStream({});
  const std::string bytes(size_t{16} << 10, 'x');
  // The kernel takes some of it, and then no more.
  EXPECT_TRUE(Eventually([&] {
    exchange->Write(bytes);
    return watching->gone.load();
  }));
}

TEST_P(HttpServerTest, AnAnswerOfManyPiecesIsWhole) {
  Start();
  const HttpClient client = Connect();
  client.Say(Post("{}", "Connection: close\r\n"));
  ASSERT_TRUE(Handled(1));
  HttpResponse response;
  for (int i = 0; i < 800000; ++i) absl::StrAppend(&response.body, i, ",");
  const std::string body = response.body;
  handler_.exchange(0)->Respond(std::move(response));
  const std::string said = client.ReadAll();
  EXPECT_EQ(said.substr(said.find("\r\n\r\n") + 4), body);
}

// Were the connection closed when the answer has been sent, the kernel would
// reset it at the client's next byte and drop what it has not passed on.
TEST_P(HttpServerTest, AClientThatStillSendsReadsItsLastAnswerToTheEnd) {
  Start();
  for (const bool draining : {false, true}) {
    const size_t index = handler_.size();
    const HttpClient client = Connect(/*receive_bytes=*/4096);
    client.Say(Post("{}", draining ? "" : "Connection: close\r\n"));
    ASSERT_TRUE(Handled(index + 1));
    if (draining) server_->BeginDrain();
    HttpResponse response;
    // More than the client's socket takes, less than both sockets do.
    response.body.assign(size_t{12} << 10, 'x');
    const std::string body = response.body;
    handler_.exchange(index)->Respond(std::move(response));
    ASSERT_TRUE(Eventually([this] { return server_->active() == 0; }));
    client.Say("GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string said = client.ReadAll();
    EXPECT_TRUE(absl::EndsWith(said, body)) << said.size() << " bytes";
    EXPECT_EQ(handler_.size(), index + 1);
    if (!draining) continue;
    // A client that does not close its end is not waited for without end.
    EXPECT_TRUE(Eventually([this] { return observer_.connections == 0; }));
  }
}

TEST_P(HttpServerTest, MemoryIsHeldUntilAnAnswerHasBeenSent) {
  options_.send_timeout = absl::Hours(1);
  ByteBudget budget(int64_t{1} << 30);
  Start();
  const auto respond = [&](const HttpClient& client) {
    const size_t index = handler_.size();
    client.Say(Post("{}", "Connection: close\r\n"));
    ASSERT_TRUE(Handled(index + 1));
    HttpResponse response;
    response.body.assign(size_t{16} << 20, 'x');  // more than sockets hold
    auto memory = budget.Take("a", int64_t{64} << 20);
    FORETOKEN_ASSERT_OK(memory);
    handler_.exchange(index)->HoldUntilSent(*std::move(memory));
    handler_.exchange(index)->Respond(std::move(response));
  };
  const HttpClient reader = Connect();
  respond(reader);
  {
    const HttpClient leaver = Connect();
    respond(leaver);
    EXPECT_EQ(budget.used(), int64_t{128} << 20);
  }
  EXPECT_TRUE(Eventually([&] { return budget.used() == int64_t{64} << 20; }));
  EXPECT_GT(reader.ReadAll().size(), size_t{16} << 20);
  EXPECT_TRUE(Eventually([&] { return budget.used() == 0; }));
  // The client is gone already: its share is released at once.
  auto late = budget.Take("a", 1);
  FORETOKEN_ASSERT_OK(late);
  handler_.exchange(1)->HoldUntilSent(*std::move(late));
  EXPECT_EQ(budget.used(), 0);
}

// Texts wait at the gate, on the thread that asks for them.
class HeldGenerator final : public Generator {
 public:
  absl::StatusOr<GeneratorInfo> Info(absl::Time) override {
    return fake.Info(absl::InfiniteFuture());
  }
  bool Ready() override { return fake.Ready(); }
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) override {
    return fake.Start(std::move(request), std::move(listener));
  }
  std::shared_ptr<PendingCall> Tokenize(const Caller& caller, std::string text,
                                        bool add_special_tokens,
                                        absl::Time deadline,
                                        OnTokens done) override {
    gate.Pass();
    return fake.Tokenize(caller, std::move(text), add_special_tokens, deadline,
                         std::move(done));
  }
  std::shared_ptr<PendingCall> Detokenize(const Caller& caller,
                                          std::vector<TokenId> tokens,
                                          absl::Time deadline,
                                          OnText done) override {
    return fake.Detokenize(caller, std::move(tokens), deadline,
                           std::move(done));
  }

  Gate gate;
  FakeGenerator fake;
};

struct EndObserver final : public GatewayObserver {
  void OnEnd(Route, int status, absl::Duration) override {
    if (status == kClientGone) ++gone;
  }
  std::atomic<int> gone{0};
};

TEST_P(HttpServerTest, AClientThatLeavesWhileItsBodyWaitsStartsNothing) {
  HeldGenerator generator;
  generator.gate.Close();
  EndObserver ends;
  GatewayOptions options;
  options.workers = 1;
  GatewayService service(options, {}, generator, ends,
                         [] { return absl::UnixEpoch(); });
  Start(service);
  const std::string text(size_t{20} << 10, 'a');  // not read where it arrives
  const std::string body =
      absl::StrCat(R"({"prompt": ")", text, R"(", "max_tokens": 9})");
  const HttpClient other = Connect();
  other.Say(
      absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: "
                   "localhost\r\nContent-Type: application/json\r\n"
                   "Content-Length: ",
                   text.size() + 14, "\r\n\r\n{\"prompt\": \"", text, "\"}"));
  ASSERT_TRUE(Eventually([&] { return generator.gate.waiting() == 1; }));
  {
    const HttpClient client = Connect();
    client.Say(Post(body));
    ASSERT_TRUE(Eventually([this] { return server_->active() == 2; }));
  }
  ASSERT_TRUE(Eventually([this] { return server_->active() == 1; }));
  generator.gate.Open();
  EXPECT_TRUE(Eventually([&] { return ends.gone == 1; }));
  EXPECT_TRUE(generator.fake.requests().empty());
  generator.fake.AnswerRest();
  server_->Stop();
}

}  // namespace
}  // namespace foretoken::gateway
