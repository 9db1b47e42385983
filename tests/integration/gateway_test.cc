// HTTP in front, Generation over gRPC behind, a quick model behind that.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/generation/generator.h"
#include "common/infer/llama2c.h"
#include "common/rpc/channel.h"
#include "common/rpc/generation_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/adapters/watched_generator.h"
#include "services/gateway/config.h"
#include "services/gateway/server.h"
#include "tests/integration/cluster.h"
#include "tests/integration/drafting_services.h"
#include "tests/support/eventually.h"
#include "tests/support/gate.h"
#include "tests/support/metric_samples.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

struct HttpAnswer {
  int status = 0;
  std::string head;
  std::string body;  // without the framing of chunks

  Json Body() const { return Json::parse(body); }
  std::vector<Json> Frames() const {
    std::vector<Json> frames;
    for (absl::string_view frame :
         absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
      EXPECT_TRUE(absl::ConsumePrefix(&frame, "data: "));
      if (frame != "[DONE]") {
        frames.push_back(Json::parse(frame.begin(), frame.end()));
      }
    }
    EXPECT_TRUE(absl::EndsWith(body, "data: [DONE]\n\n"));
    return frames;
  }
};

// The first answer in `bytes`, which is taken from them.
HttpAnswer TakeAnswer(std::string& bytes) {
  HttpAnswer answer;
  const size_t end = bytes.find("\r\n\r\n");
  EXPECT_NE(end, std::string::npos) << bytes;
  if (end == std::string::npos) return answer;
  answer.head = bytes.substr(0, end);
  absl::string_view rest = absl::string_view(bytes).substr(end + 4);
  EXPECT_TRUE(absl::SimpleAtoi(answer.head.substr(9, 3), &answer.status));
  const size_t length = answer.head.find("Content-Length: ");
  if (length != std::string::npos) {
    size_t size = 0;
    const std::string digits = answer.head.substr(length + 16);
    EXPECT_TRUE(absl::SimpleAtoi(digits.substr(0, digits.find('\r')), &size));
    answer.body = std::string(rest.substr(0, size));
    rest.remove_prefix(std::min(size, rest.size()));
  } else if (absl::StrContains(answer.head, "Transfer-Encoding: chunked")) {
    while (!rest.empty()) {
      const size_t line = rest.find("\r\n");
      const size_t size =
          std::stoul(std::string(rest.substr(0, line)), nullptr, 16);
      rest.remove_prefix(line + 2);
      answer.body += std::string(rest.substr(0, size));
      rest.remove_prefix(size + 2);
      if (size == 0) break;
    }
  } else {
    answer.body = std::string(rest);
    rest = "";
  }
  bytes = std::string(rest);
  return answer;
}

class GatewayTest : public ::testing::Test {
 protected:
  GatewayTest() : file_(dir_.Write("tokenizer.json", TinyTokenizerJson())) {
    options_.http.listen = {"127.0.0.1:0"};
    options_.model = dir_.path();
    verifier_options_.random_model =
        "d_model=32,layers=2,heads=4,kv_heads=2,d_ff=64,vocab=50,"
        "max_positions=512";
  }

  // Passes wait until the test opens the gate.
  void HoldPasses() {
    verifier_options_.random_model = "";
    verifier_options_.fake.vocab_size = kTinyVocabulary;
    gate_.Close();
    verifier_options_.fake.before_pass = [this] { gate_.Pass(); };
  }

  void StartWithoutWaiting() {
    verifier_ = StartVerifier(verifier_options_);
    orchestrator::OrchestratorService config;
    config.verifiers = {verifier_->address()};
    config.tokenizer = file_;
    config.server.model_name = "tiny";
    if (drafting_ != nullptr) drafting_->AddTo(config);
    orchestrator_ = StartOrchestrator(config, orchestrator_server_);
    rpc::ChannelOptions channel;
    channel.token_file = token_file_;
    auto unwatched =
        rpc::GenerationClient::Connect(orchestrator_->address(), channel);
    FORETOKEN_ASSERT_OK(unwatched);
    channel.health_service = "foretoken.v1.Generation";
    auto client =
        rpc::GenerationClient::Connect(orchestrator_->address(), channel);
    FORETOKEN_ASSERT_OK(client);
    auto gateway = gateway::GatewayServer::Start(
        options_,
        std::make_unique<gateway::WatchedGenerator>(
            *std::move(client),
            /*with_principals=*/!options_.key_file.empty(),
            gateway::WatchedGenerator::ModelTimes(), *std::move(unwatched)),
        registry_);
    FORETOKEN_ASSERT_OK(gateway);
    gateway_ = *std::move(gateway);
  }
  void Start() {
    StartWithoutWaiting();
    ASSERT_TRUE(Eventually([this] { return Get("/health").status == 200; }));
  }

  const std::string& address() const { return gateway_->addresses().at(0); }
  RawConnection Connect() const { return RawConnection(address()); }

  HttpAnswer Get(const std::string& path) const {
    const RawConnection client = Connect();
    client.Say(
        absl::StrCat("GET ", path,
                     " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "\r\n"));
    std::string bytes = client.ReadAll();
    return TakeAnswer(bytes);
  }
  static std::string PostText(
      const std::string& path, const std::string& body,
      const std::string& headers = "Connection: close\r\n") {
    return absl::StrCat("POST ", path,
                        " HTTP/1.1\r\nHost: localhost\r\n"
                        "Content-Type: application/json\r\nContent-Length: ",
                        body.size(), "\r\n", headers, "\r\n", body);
  }
  HttpAnswer Post(const std::string& path, const std::string& body) const {
    const RawConnection client = Connect();
    client.Say(PostText(path, body));
    std::string bytes = client.ReadAll();
    return TakeAnswer(bytes);
  }
  double Sample(const std::string& sample) const {
    return metrics::SampleValue(registry_.Text(), sample).value_or(-1);
  }
  // Requests of the orchestrator.
  double Running() const {
    return orchestrator_->Sample("foretoken_requests_running");
  }

  const TempDir dir_;
  const std::string file_;
  Gate gate_;
  gateway::GatewayServerOptions options_;
  TestVerifierOptions verifier_options_;
  rpc::ServerOptions orchestrator_server_;
  std::string token_file_;  // of the gateway
  metrics::Registry registry_;
  std::unique_ptr<TestVerifier> verifier_;
  std::unique_ptr<DraftingServices> drafting_;  // null: none
  std::unique_ptr<TestOrchestrator> orchestrator_;
  std::unique_ptr<gateway::GatewayServer> gateway_;
};

// What one request wrote.
struct Written {
  std::vector<TokenId> tokens;
  std::string text;
};

bool operator==(const Written& a, const Written& b) {
  return a.tokens == b.tokens && a.text == b.text;
}

std::ostream& operator<<(std::ostream& out, const Written& written) {
  return out << "[" << absl::StrJoin(written.tokens, " ") << "] '"
             << written.text << "'";
}

// A mode, as the command line writes it and as a field of JSON.
struct ModeCase {
  const char* mode;
  const char* json;
  const char* drafter;  // has to have drafted; "" for none
};

const std::vector<ModeCase> kModesWithoutServices = {
    {"off", R"("off")", ""},
    {"prompt_lookup", R"("prompt_lookup")", "prompt_lookup"},
    {"prompt_lookup:max_n=2", R"({"prompt_lookup": {"max_n": 2}})",
     "prompt_lookup"},
    {"ngram_trie", R"("ngram_trie")", "ngram_trie"},
    {"ngram_trie:n=3,num_draft=4",
     R"({"ngram_trie": {"n": 3, "num_draft": 4}})", "ngram_trie"},
    {"lookahead", R"("lookahead")", "lookahead"},
    {"auto", R"("auto")", "fused"},
};
const std::vector<ModeCase> kModesWithServices = {
    {"draft_model", R"("draft_model")", "draft_model"},
    {"draft_model:gamma=3", R"({"draft_model": {"gamma": 3}})", "draft_model"},
    {"ouroboros", R"("ouroboros")", "ouroboros"},
    {"ouroboros:gamma=4,suffixes=2",
     R"({"ouroboros": {"gamma": 4, "suffixes": 2}})", "ouroboros"},
    {"crest", R"("crest")", "crest"},
    {"crest:datastore=chat", R"({"crest": {"datastore": "chat"}})", "crest"},
};

class GatewayModesTest : public GatewayTest {
 protected:
  static constexpr int kPrompts = 3;
  static constexpr int kTokens = 40;

  // On a busy machine the guard may find that drafting does not pay.
  GatewayModesTest() {
    verifier_options_.engine.guard = verifier::GuardMode::kWide;
  }

  // Over gRPC.
  Written Write(int i, const std::string& mode, double temperature) const {
    v1::GenerateRequest request = MakeRequest(Prompt(i), mode, kTokens);
    request.mutable_sampling()->set_temperature(
        static_cast<float>(temperature));
    request.mutable_sampling()->set_seed(100 + i);
    Written written;
    const auto result = orchestrator_->client->Generate(
        request, absl::Now() + absl::Minutes(2),
        [&](const v1::GenerateDelta& delta) {
          written.tokens.insert(written.tokens.end(), delta.token_ids().begin(),
                                delta.token_ids().end());
          written.text += delta.text();
          return true;
        });
    FORETOKEN_EXPECT_OK(result.status());
    return written;
  }

  // The same over HTTP; adds up what each drafter drafted.
  Written Post(int i, const std::string& mode, double temperature, bool stream,
               std::map<std::string, int64_t>& drafted) const {
    const HttpAnswer answer = GatewayTest::Post(
        "/v1/completions",
        absl::StrCat(R"({"prompt":[)", absl::StrJoin(Prompt(i), ","),
                     R"(],"max_tokens":)", kTokens, R"(,"seed":)", 100 + i,
                     R"(,"temperature":)", temperature, R"(,"speculation":)",
                     mode, R"(,"stream":)", stream ? "true" : "false",
                     R"(,"foretoken":{"tokens":true}})"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    Written written;
    std::string pieces;
    const auto read = [&](const Json& choice, const Json& extension) {
      written.text += choice["text"].get<std::string>();
      for (const Json& token : extension.value("tokens", Json::array())) {
        written.tokens.push_back(token["id"].get<TokenId>());
        pieces += token["text"].get<std::string>();
      }
    };
    Json statistics;
    if (stream) {
      for (const Json& frame : answer.Frames()) {
        const Json extension = frame.value("foretoken", Json::object());
        read(frame["choices"][0], extension);
        if (extension.contains("by_drafter")) statistics = extension;
      }
    } else {
      const Json body = answer.Body();
      read(body["choices"][0],
           body["choices"][0].value("foretoken", Json::object()));
      statistics = body["foretoken"];
    }
    EXPECT_EQ(pieces, written.text);
    for (const Json& each : statistics["by_drafter"]) {
      drafted[each["drafter"].get<std::string>()] +=
          each["drafted_tokens"].get<int64_t>();
    }
    return written;
  }

  // Every mode, over both, writes what `off` writes over gRPC.
  void ExpectEqual(const std::vector<ModeCase>& modes) const {
    std::map<std::string, std::map<std::string, int64_t>> drafted;
    for (const double temperature : {0.0, 0.8}) {
      for (int i = 0; i < kPrompts; ++i) {
        const Written off = Write(i, "off", temperature);
        EXPECT_EQ(off.tokens.size(), static_cast<size_t>(kTokens));
        EXPECT_FALSE(off.text.empty());
        for (const auto& [mode, json, drafter] : modes) {
          SCOPED_TRACE(absl::StrCat(mode, " at ", temperature));
          EXPECT_EQ(Write(i, mode, temperature), off);
          EXPECT_EQ(Post(i, json, temperature, true, drafted[mode]), off);
          EXPECT_EQ(Post(i, json, temperature, false, drafted[mode]), off);
        }
      }
    }
    for (const auto& [mode, json, drafter] : modes) {
      if (*drafter == 0) continue;
      EXPECT_GT(drafted[mode][drafter], 0) << mode;
    }
  }

 private:
  static std::vector<TokenId> Prompt(int i) {
    return MakePrompt(i, 9 + 14 * i, kTinyVocabulary);
  }
};

TEST_F(GatewayModesTest, IdsEqualThoseOfGrpc) {
  Start();
  ExpectEqual(kModesWithoutServices);
}

TEST_F(GatewayModesTest, IdsEqualThoseOfGrpcWithEveryDraftingService) {
  drafting_ =
      std::make_unique<DraftingServices>(verifier_options_.random_model, file_);
  Start();
  ExpectEqual(kModesWithoutServices);
  ExpectEqual(kModesWithServices);
}

TEST_F(GatewayTest, OneBodyHasTheTextOfTheStream) {
  Start();
  const std::string request =
      R"({"prompt": "the hen", "max_tokens": 30, "seed": 7, "n": 3,
          "temperature": 0.9, "echo": true)";
  const HttpAnswer whole = Post("/v1/completions", absl::StrCat(request, "}"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const HttpAnswer stream =
      Post("/v1/completions", absl::StrCat(request,
                                           R"(,"stream":true,
                           "stream_options":{"include_usage":true}})"));
  EXPECT_THAT(stream.head, HasSubstr("Content-Type: text/event-stream"));
  std::vector<std::string> texts(3);
  Json usage;
  for (const Json& frame : stream.Frames()) {
    for (const Json& choice : frame["choices"]) {
      texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
    }
    usage = frame["usage"];
  }
  const Json body = whole.Body();
  ASSERT_THAT(body["choices"], SizeIs(3));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(texts[i], body["choices"][i]["text"]);
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_EQ(usage["completion_tokens"], body["usage"]["completion_tokens"]);
  EXPECT_EQ(body["foretoken"]["choices"][0]["seed"], 7);
}

TEST_F(GatewayTest, ModelsAndTextsGoThrough) {
  Start();
  const Json models = Get("/v1/models").Body();
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
  EXPECT_EQ(models["data"][0]["foretoken"]["default_mode"], "auto");
  const Json tokens = Post("/tokenize", R"({"prompt": "the hen"})").Body();
  EXPECT_EQ(tokens["tokens"][0], 0);  // <s>
  const HttpAnswer text =
      Post("/detokenize",
           absl::StrCat("{\"tokens\":", tokens["tokens"].dump(), "}"));
  EXPECT_EQ(text.Body()["prompt"], "the hen");
}

TEST_F(GatewayTest, ErrorsOfTheOrchestratorKeepTheirStatus) {
  Start();
  const HttpAnswer too_long =
      Post("/v1/completions", R"({"prompt": "a", "max_tokens": 1000})");
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(too_long.Body()["error"]["param"], "max_tokens");
  EXPECT_EQ(too_long.Body()["error"]["code"], "context_length_exceeded");
  const HttpAnswer unknown =
      Post("/v1/completions", R"({"prompt": [1], "logit_bias": {"4000": 1}})");
  EXPECT_EQ(unknown.status, 400);
  const HttpAnswer mode = Post(
      "/v1/completions", R"({"prompt": "a", "speculation": "draft_model"})");
  EXPECT_EQ(mode.status, 400);  // this server has no draft worker
  EXPECT_THAT(mode.Body()["error"]["message"].get<std::string>(),
              HasSubstr("draft_model"));
}

TEST_F(GatewayTest, AConnectionServesOneRequestAfterTheOther) {
  Start();
  const RawConnection client = Connect();
  const std::string body = R"({"prompt": "a", "max_tokens": 3})";
  // The second and third before the first is answered.
  client.Say(absl::StrCat(PostText("/v1/completions", body, ""),
                          "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
                          PostText("/v1/completions", body)));
  std::string bytes = client.ReadAll();
  EXPECT_EQ(TakeAnswer(bytes).Body()["object"], "text_completion");
  EXPECT_EQ(TakeAnswer(bytes).Body()["object"], "list");
  EXPECT_EQ(TakeAnswer(bytes).Body()["object"], "text_completion");
  EXPECT_EQ(bytes, "");
}

TEST_F(GatewayTest, OtherFormsOfRequestsAreServed) {
  Start();
  const std::string body = R"({"prompt": "a", "max_tokens": 3})";
  const auto answer = [&](const std::string& request) {
    const RawConnection client = Connect();
    client.Say(request);
    return client.ReadAll();
  };
  std::string expecting =
      answer(PostText("/v1/completions", body,
                      "Connection: close\r\nExpect: 100-continue\r\n"));
  EXPECT_TRUE(absl::StartsWith(expecting, "HTTP/1.1 100 Continue\r\n\r\n"));
  expecting = expecting.substr(expecting.find("\r\n\r\n") + 4);
  EXPECT_EQ(TakeAnswer(expecting).status, 200);
  std::string chunked = answer(absl::StrCat(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: "
      "close\r\n"
      "Content-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n5\r\n",
      body.substr(0, 5), "\r\n", absl::StrFormat("%x", body.size() - 5), "\r\n",
      body.substr(5), "\r\n0\r\n\r\n"));
  EXPECT_EQ(TakeAnswer(chunked).status, 200);
  // HTTP/1.0 knows no chunks: the end of the connection is that of the stream.
  const std::string streamed =
      R"({"prompt": "a", "max_tokens": 3, "stream": true})";
  std::string old = answer(absl::StrCat(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
      "Content-Length: ",
      streamed.size(), "\r\n\r\n", streamed));
  EXPECT_THAT(old, Not(HasSubstr("chunked")));
  EXPECT_FALSE(TakeAnswer(old).Frames().empty());
  std::string head = answer(
      "HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: "
      "close\r\n\r\n");
  EXPECT_TRUE(absl::EndsWith(head, "\r\n\r\n"));
  EXPECT_TRUE(absl::StartsWith(head, "HTTP/1.1 200 OK\r\n"));
}

TEST_F(GatewayTest, BadAndLargeRequestsAreRefused) {
  options_.http.max_body_bytes = 1000;
  options_.http.max_header_bytes = 2000;
  options_.http.request_time = absl::Milliseconds(300);
  Start();
  const auto status = [&](const std::string& request) {
    const RawConnection client = Connect();
    client.Say(request);
    std::string bytes = client.ReadAll();
    return TakeAnswer(bytes).status;
  };
  EXPECT_EQ(status("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(status(absl::StrCat("GET / HTTP/1.1\r\nA: ", std::string(3000, 'a'),
                                "\r\n\r\n")),
            431);
  EXPECT_EQ(status(PostText("/v1/completions", std::string(1001, ' '))), 413);
  EXPECT_EQ(status("POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                   "Content-Length: 100\r\n"
                   "\r\nhalf of it"),
            408);
  EXPECT_EQ(
      Sample("foretoken_http_requests_total{code=\"413\",route=\"other\"}"), 1);
}

TEST_F(GatewayTest, ASilentConnectionIsClosed) {
  options_.http.idle_time = absl::Milliseconds(100);
  Start();
  const RawConnection client = Connect();
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(GatewayTest, AClientThatGoesAwayFreesEverything) {
  HoldPasses();
  Start();
  for (const std::string stream : {"true", "false"}) {
    gate_.Close();
    {
      const RawConnection client = Connect();
      client.Say(
          PostText("/v1/completions",
                   absl::StrCat(R"({"prompt": "a", "max_tokens": 4000, "n": 2,
                           "ignore_eos": true, "stream": )",
                                stream, "}")));
      ASSERT_TRUE(Eventually([this] { return Running() == 2; }));
    }
    EXPECT_TRUE(Eventually(
        [this] { return Sample("foretoken_http_requests_running") == 0; }));
    gate_.Open();
    EXPECT_TRUE(Eventually([this] { return Running() == 0; }));
  }
  EXPECT_EQ(
      orchestrator_->Sample("foretoken_requests_total{code=\"CANCELLED\"}"), 4);
  EXPECT_EQ(
      Sample(
          "foretoken_http_requests_total{code=\"499\",route=\"completions\"}"),
      2);
}

TEST_F(GatewayTest, ASlowReaderWaitsAndGetsEverything) {
  // Many choices with logprobs: far more than the queues hold.
  options_.http.send_timeout = absl::Minutes(2);
  Start();
  const RawConnection client = Connect();
  client.Say(PostText("/v1/completions",
                      R"({"prompt": "a", "max_tokens": 500, "n": 16,
                          "ignore_eos": true, "logprobs": 20, "stream": true,
                          "seed": 1})"));
  EXPECT_TRUE(
      Eventually([this] { return Sample("foretoken_http_pauses_total") > 0; }));
  // Others are served meanwhile.
  EXPECT_EQ(Post("/v1/completions", R"({"prompt": "a"})").status, 200);
  std::string bytes = client.ReadAll();
  std::vector<int> tokens(16);
  for (const Json& frame : TakeAnswer(bytes).Frames()) {
    for (const Json& choice : frame["choices"]) {
      if (choice["logprobs"].is_null()) continue;
      tokens[choice["index"].get<size_t>()] +=
          static_cast<int>(choice["logprobs"]["tokens"].size());
    }
  }
  EXPECT_THAT(tokens, ::testing::Each(500));
}

TEST_F(GatewayTest, KeysAreAskedFor) {
  options_.key_file = dir_.Write("keys", "key-of-alice-0123456789 alice\n");
  token_file_ = dir_.Write("token", "token-of-the-gateway-01\n");
  orchestrator_server_.token_file = dir_.Write(
      "tokens", "token-of-the-gateway-01 gateway speaks_for_others\n");
  Start();
  EXPECT_EQ(Post("/v1/completions", R"({"prompt": "a"})").status, 401);
  EXPECT_EQ(Sample("foretoken_unauthenticated_calls_total"), 1);
  const RawConnection client = Connect();
  client.Say(PostText("/v1/completions", R"({"prompt": "a"})",
                      "Connection: close\r\n"
                      "Authorization: Bearer key-of-alice-0123456789\r\n"));
  std::string bytes = client.ReadAll();
  EXPECT_EQ(TakeAnswer(bytes).status, 200);
}

TEST_F(GatewayTest, RequestsAreMadeInTheNameOfTheirCallers) {
  options_.key_file = dir_.Write("keys",
                                 "key-of-alice-0123456789 alice\n"
                                 "key-of-robert-012345678 robert\n");
  token_file_ = dir_.Write("token", "token-of-the-gateway-01\n");
  orchestrator_server_.token_file =
      dir_.Write("tokens",
                 "token-of-the-gateway-01 gateway speaks_for_others\n"
                 "token-of-alice-01234567 alice\n");
  Start();
  const auto served = [&](const std::string& principal) {
    return orchestrator_->Sample(
        "foretoken_principal_requests_total{outcome=\"served\",principal=\"" +
        principal + "\"}");
  };
  for (const char* name : {"alice", "robert"}) {
    const RawConnection client = Connect();
    client.Say(PostText(
        "/v1/completions", R"({"prompt": "a"})",
        absl::StrCat(
            "Connection: close\r\nAuthorization: Bearer key-of-", name,
            absl::string_view(name) == "alice" ? "-0123456789" : "-012345678",
            "\r\n")));
    std::string bytes = client.ReadAll();
    EXPECT_EQ(TakeAnswer(bytes).status, 200);
  }
  EXPECT_EQ(served("alice"), 1);
  EXPECT_EQ(served("other"), 1);  // robert has no account there
}

// The orchestrator's token file: without the mark, and none at all.
class NoLeaveTest : public GatewayTest,
                    public ::testing::WithParamInterface<const char*> {};

TEST_P(NoLeaveTest, NobodyIsServedUnderTheGatewaysName) {
  options_.key_file = dir_.Write("keys", "key-of-robert-012345678 robert\n");
  token_file_ = dir_.Write("token", "token-of-alice-01234567\n");
  if (*GetParam() != 0) {
    orchestrator_server_.token_file = dir_.Write("tokens", GetParam());
  }
  StartWithoutWaiting();
  EXPECT_TRUE(Eventually([this] {
    return absl::StrContains(Get("/health").body, "speaks_for_others");
  }));
  EXPECT_EQ(Get("/health").status, 503);
  const RawConnection client = Connect();
  client.Say(PostText("/v1/completions", R"({"prompt": "a"})",
                      "Connection: close\r\n"
                      "Authorization: Bearer key-of-robert-012345678\r\n"));
  std::string bytes = client.ReadAll();
  EXPECT_EQ(TakeAnswer(bytes).status, 503);
}

INSTANTIATE_TEST_SUITE_P(Tokens, NoLeaveTest,
                         ::testing::Values("token-of-alice-01234567 alice\n",
                                           ""));

// A llama2.c model of random weights, one of which is NaN.
std::string WriteModelWithNan(const TempDir& dir) {
  constexpr int32_t kHeader[] = {32, 48, 2, 4, 2, kTinyVocabulary, 64};
  constexpr int kLayer = 2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32;
  std::vector<float> floats(kTinyVocabulary * 32 + 2 * kLayer + 32 + 64 * 8);
  std::mt19937 random(1);
  for (float& value : floats) {
    value = static_cast<float>(random() % 2001) / 10000.0f - 0.1f;
  }
  // In an attention's norm, which every text goes through.
  floats[kTinyVocabulary * 32 + 40] = std::numeric_limits<float>::quiet_NaN();
  std::vector<uint8_t> bytes(sizeof(kHeader) + 4 * floats.size());
  std::memcpy(bytes.data(), kHeader, sizeof(kHeader));
  std::memcpy(bytes.data() + sizeof(kHeader), floats.data(), 4 * floats.size());
  const auto files = ConvertLlama2c(bytes, "nan.bin");
  EXPECT_THAT(files, IsOk());
  FORETOKEN_EXPECT_OK(WriteLlama2cFiles(*files, dir.path()));
  return dir.path();
}

TEST_F(GatewayTest, AModelOfNanIsSaidToBeOne) {
  const TempDir model;
  verifier_options_.model = WriteModelWithNan(model);
  StartWithoutWaiting();
  EXPECT_TRUE(Eventually([this] {
    return absl::StrContains(Get("/health").body, "logits are not finite");
  })) << Get("/health").body;
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_FALSE(verifier_->service->Ready());
  EXPECT_FALSE(orchestrator_->service->Ready());
  const HttpAnswer refused =
      Post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("not finite"));
  const Generated generated =
      Generate(*orchestrator_->client, MakeRequest({1}, "off", 2));
  EXPECT_THAT(generated.status, StatusIs(absl::StatusCode::kUnavailable,
                                         HasSubstr("not finite")));
}

TEST_F(GatewayTest, AModelThatFailsWhileItServesIsSaidToHaveFailed) {
  verifier_options_.random_model = "";
  verifier_options_.fake.vocab_size = kTinyVocabulary;
  verifier_options_.fake.broken_from = 4;
  Start();
  const std::string body =
      R"({"prompt": "a", "max_tokens": 20, "ignore_eos": true})";
  const HttpAnswer first = Post("/v1/completions", body);
  EXPECT_EQ(first.status, 503) << first.body;
  EXPECT_TRUE(Eventually([this] {
    return absl::StrContains(Get("/health").body, "logits are not finite");
  })) << Get("/health").body;
  EXPECT_FALSE(verifier_->service->Ready());
}

TEST_F(GatewayTest, KeysWithLimitsOrTheServersOwnTokenAreRefused) {
  const auto start = [this](const std::string& keys) {
    gateway::GatewayConfig config;
    config.server = options_;
    config.server.key_file = dir_.Write("keys", keys);
    config.orchestrator = "127.0.0.1:1";
    config.channel.token_file =
        dir_.Write("token", "token-of-the-gateway-01\n");
    metrics::Registry registry;
    return config.Start(registry).status();
  };
  EXPECT_THAT(start("key-of-alice-0123456789 alice requests=1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("orchestrator's token file")));
  EXPECT_THAT(start("token-of-the-gateway-01 alice\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--orchestrator-token-file")));
  FORETOKEN_EXPECT_OK(start("key-of-alice-0123456789 alice\n"));
}

// Answers texts when it is destroyed.
class LateGenerator final : public Generator {
 public:
  explicit LateGenerator(std::weak_ptr<int> of_service)
      : of_service_(std::move(of_service)) {}
  ~LateGenerator() override {
    EXPECT_FALSE(of_service_.expired());
    if (done_ != nullptr) done_(absl::CancelledError("late"));
  }
  absl::StatusOr<GeneratorInfo> Info(absl::Time) override {
    GeneratorInfo info;
    info.model = "late";
    info.max_positions = 100;
    return info;
  }
  bool Ready() override { return true; }
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest, std::shared_ptr<GenerationListener>) override {
    return nullptr;
  }
  std::shared_ptr<PendingCall> Tokenize(const Caller&, std::string, bool,
                                        absl::Time, OnTokens done) override {
    done_ = std::move(done);
    asked.Notify();
    return nullptr;
  }
  std::shared_ptr<PendingCall> Detokenize(const Caller&, std::vector<TokenId>,
                                          absl::Time, OnText) override {
    return nullptr;
  }

  absl::Notification asked;

 private:
  const std::weak_ptr<int> of_service_;
  OnTokens done_;
};

TEST_F(GatewayTest, AnswersThatComeAtTheEndFindTheService) {
  auto token = std::make_shared<int>(0);
  options_.clock = [token, clock = MonotonicClock()] { return clock(); };
  auto made = std::make_unique<LateGenerator>(token);
  LateGenerator& generator = *made;
  auto gateway =
      gateway::GatewayServer::Start(options_, std::move(made), registry_);
  FORETOKEN_ASSERT_OK(gateway);
  gateway_ = *std::move(gateway);
  options_.clock = nullptr;
  token.reset();  // the service alone keeps it
  {
    const RawConnection client = Connect();
    client.Say(PostText("/tokenize", R"({"prompt": "a"})"));
    generator.asked.WaitForNotification();
  }
  gateway_.reset();
}

TEST_F(GatewayTest, ADrainLetsAnswersEnd) {
  HoldPasses();
  Start();
  const RawConnection idle = Connect();
  const RawConnection client = Connect();
  client.Say(PostText("/v1/completions",
                      R"({"prompt": "a", "max_tokens": 200, "stream": true,
                          "ignore_eos": true})",
                      ""));
  ASSERT_TRUE(Eventually([this] { return Running() == 1; }));
  std::thread drain([this] { gateway_->Drain(absl::Minutes(1)); });
  EXPECT_EQ(idle.ReadAll(), "");  // the drain has begun
  gate_.Open();
  std::string bytes = client.ReadAll();
  EXPECT_FALSE(TakeAnswer(bytes).Frames().empty());
  drain.join();
  EXPECT_FALSE(Connect().connected());
}

}  // namespace
}  // namespace foretoken::testing
