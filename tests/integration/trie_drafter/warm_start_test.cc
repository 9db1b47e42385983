// Warm start through a real Redis: restarts, replicas, and Redis' deaths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "absl/strings/str_split.h"
#include "tests/integration/trie_drafter/draft_client.h"
#include "tests/support/eventually.h"
#include "tests/support/private_redis.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using ::testing::Not;
using ::testing::StartsWith;

std::unique_ptr<TestTrieDrafter> StartWith(const std::string& redis_url) {
  trie_drafter::TrieDrafterService parts;
  parts.redis_url = redis_url;
  parts.redis.min_pause = absl::Milliseconds(5);
  parts.redis.max_pause = absl::Milliseconds(50);
  parts.redis.ping_interval = absl::Milliseconds(50);
  parts.redis.client.command_timeout = absl::Milliseconds(500);
  parts.redis.max_records = 4;
  return StartTrieDrafter(parts);
}

std::vector<TokenId> Output(TokenId first) {
  std::vector<TokenId> tokens(30);
  for (int i = 0; i < 30; ++i) tokens[static_cast<size_t>(i)] = first + i;
  return tokens;
}

// One request of mode auto that writes `output`.
void Write(const TestTrieDrafter& trie, const std::string& scope,
           const std::vector<TokenId>& output) {
  DraftClient client(*trie.stub);
  client.Send(OpenOf("auto", {1, 2}, scope));
  DraftRound round =
      RoundOf(2 + static_cast<int64_t>(output.size()), output, 0);
  round.phrases = {{output[0], output[1], output[2]}};
  ASSERT_THAT(client.Ask(round), IsOk());
  client.HalfClose();
  ASSERT_THAT(client.Finish(), IsOk());
}

// Whether a new request that ends like `output` began is drafted its rest.
bool Knows(const TestTrieDrafter& trie, const std::string& scope,
           const std::vector<TokenId>& output) {
  DraftClient client(*trie.stub);
  client.Send(OpenOf("auto", {9, output[0], output[1]}, scope));
  const auto answer = client.Ask(RoundOf(3, {}));
  return answer.ok() && answer->tree.size() > 0 &&
         answer->tree.tokens[0] == output[2];
}

int64_t Phrases(const TestTrieDrafter& trie, const std::string& scope) {
  grpc::ClientContext context;
  v1::GetPhrasesRequest request;
  v1::GetPhrasesResponse response;
  request.set_cache_scope(scope);
  request.set_max_phrases(100);
  if (!trie.stub->GetPhrases(&context, request, &response).ok()) return -1;
  return response.phrases_size();
}

double Events(const TestTrieDrafter& trie, const std::string& result) {
  return trie.Sample("foretoken_warm_start_events_total{result=\"" + result +
                     "\"}");
}

bool Up(const TestTrieDrafter& trie) {
  return trie.Sample("foretoken_redis_up") == 1;
}

class WarmStartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PrivateRedis::Installed()) GTEST_SKIP() << "no redis-server";
    redis_.Start();
  }
  // Writes and waits until Redis has it.
  void WriteThrough(const TestTrieDrafter& trie, const std::string& scope,
                    TokenId first) {
    const double before = Events(trie, "written");
    Write(trie, scope, Output(first));
    ASSERT_TRUE(
        Eventually([&] { return Events(trie, "written") >= before + 2; }));
  }
  std::vector<std::string> Keys() const {
    return absl::StrSplit(redis_.Command({"KEYS", "*"}), '\n',
                          absl::SkipEmpty());
  }
  PrivateRedis redis_;
};

TEST_F(WarmStartTest, OutlivesARestartOfTheService) {
  {
    const auto first = StartWith(redis_.url());
    ASSERT_TRUE(Eventually([&] { return Up(*first); }));
    Write(*first, "secret scope", Output(100));  // written on the way out
  }
  const auto second = StartWith(redis_.url());
  EXPECT_TRUE(
      Eventually([&] { return Knows(*second, "secret scope", Output(100)); }));
  EXPECT_EQ(Phrases(*second, "secret scope"), 1);
  EXPECT_FALSE(Knows(*second, "another scope", Output(100)));
  EXPECT_EQ(Events(*second, "loaded"), 1);
}

TEST_F(WarmStartTest, ReplicasShareAndKeysAreHashedBoundedAndExpire) {
  const auto a = StartWith(redis_.url());
  const auto b = StartWith(redis_.url());
  for (TokenId i = 0; i < 6; ++i) WriteThrough(*a, "secret", 100 + 50 * i);
  EXPECT_TRUE(Eventually([&] { return Knows(*b, "secret", Output(350)); }));
  EXPECT_FALSE(Knows(*b, "secret", Output(100)));  // the oldest of six
  EXPECT_EQ(Phrases(*b, "secret"), 4);
  ASSERT_EQ(Keys().size(), 2u);
  for (const std::string& key : Keys()) {
    EXPECT_THAT(
        key, AllOf(StartsWith("foretoken:trie:1:{"), Not(HasSubstr("secret"))));
    EXPECT_EQ(redis_.Command({"LLEN", key}), "4");
    EXPECT_GT(std::stoi(redis_.Command({"TTL", key})), 0);
  }
}

// Tokens first .. first + 7, of the tiny tokenizer.
std::vector<TokenId> ShortOutput(TokenId first) {
  std::vector<TokenId> tokens(8);
  for (int i = 0; i < 8; ++i) tokens[static_cast<size_t>(i)] = first + i;
  return tokens;
}

TEST_F(WarmStartTest, AScopesPriorOutlivesARestart) {
  TempDir dir;
  trie_drafter::TrieDrafterService parts;
  parts.tokenizer = dir.Write("tokenizer.json", TinyTokenizerJson());
  parts.redis_url = redis_.url();
  parts.redis.max_records = 1;
  parts.core.scopes.history_tokens = 16;
  parts.core.scopes.prior.max_tokens = 1000;
  parts.core.scopes.prior.compact_every = 8;
  const auto prior_tokens = [](const TestTrieDrafter& trie) {
    return trie.Sample("foretoken_trie_scope_prior_tokens");
  };
  {
    const auto first = StartTrieDrafter(parts);
    ASSERT_TRUE(Eventually([&] { return Up(*first); }));
    EXPECT_EQ(first->Sample("foretoken_trie_scope_prior_bytes"), 0);
    for (TokenId output : {10, 20, 30, 40}) {
      Write(*first, "secret scope", ShortOutput(output));
    }
    EXPECT_TRUE(Eventually(
        [&] { return Knows(*first, "secret scope", ShortOutput(10)); }));
    EXPECT_FALSE(Knows(*first, "another scope", ShortOutput(10)));
  }
  // Outputs, phrases, texts.
  EXPECT_EQ(Keys().size(), 3u);
  for (const std::string& key : Keys()) {
    EXPECT_THAT(
        key, AllOf(StartsWith("foretoken:trie:1:{"), Not(HasSubstr("secret"))));
    EXPECT_GT(std::stoi(redis_.Command({"TTL", key})), 0);
  }
  const auto second = StartTrieDrafter(parts);
  ASSERT_TRUE(Eventually([&] { return Up(*second); }));
  EXPECT_EQ(prior_tokens(*second), 0);
  // The history has the last output alone, the prior the others.
  EXPECT_TRUE(Eventually(
      [&] { return Knows(*second, "secret scope", ShortOutput(10)); }));
  EXPECT_EQ(prior_tokens(*second), 3 * 9);
  EXPECT_EQ(second->Sample("foretoken_trie_scope_prior_compactions_total"), 1);
  EXPECT_GT(second->Sample("foretoken_trie_scope_prior_bytes"), 4 * 9 * 4);
  EXPECT_FALSE(Knows(*second, "another scope", ShortOutput(10)));
  EXPECT_FALSE(Knows(*second, "", ShortOutput(10)));
}

TEST_F(WarmStartTest, AKilledRedisCostsWarmStartAlone) {
  const auto trie = StartWith(redis_.url());
  ASSERT_TRUE(Eventually([&] { return Up(*trie); }));
  DraftClient running(*trie->stub);
  running.Send(OpenOf("auto", {1, 2, 3, 1, 2}, "s"));
  ASSERT_THAT(running.Ask(RoundOf(5, {})), IsOk());
  redis_.Kill();
  EXPECT_THAT(running.Ask(RoundOf(6, {3})), IsOk());
  EXPECT_TRUE(Eventually([&] { return !Up(*trie); }));
  Write(*trie, "s", Output(100));
  EXPECT_TRUE(Knows(*trie, "s", Output(100)));
  redis_.Start();
  EXPECT_TRUE(Eventually([&] { return Up(*trie); }));
  // What waited is written now.
  EXPECT_TRUE(Eventually([&] { return Keys().size() == 2; }));
}

TEST_F(WarmStartTest, AHungRedisIsWaitedForByNobody) {
  const auto trie = StartWith(redis_.url());
  ASSERT_TRUE(Eventually([&] { return Up(*trie); }));
  redis_.Pause();
  Write(*trie, "s", Output(100));
  EXPECT_TRUE(Knows(*trie, "s", Output(100)));
  EXPECT_EQ(Phrases(*trie, "s"), 1);
  EXPECT_TRUE(Eventually([&] { return !Up(*trie); }));
  redis_.Resume();
  EXPECT_TRUE(Eventually([&] { return Up(*trie); }));
  WriteThrough(*trie, "s", 200);
}

TEST_F(WarmStartTest, AnAbsentRedisIsFoundWhenItComes) {
  redis_.Kill();
  const auto trie = StartWith(redis_.url());
  Write(*trie, "s", Output(100));
  EXPECT_TRUE(Knows(*trie, "s", Output(100)));
  EXPECT_FALSE(Up(*trie));
  redis_.Start();
  EXPECT_TRUE(Eventually([&] { return Up(*trie); }));
}

TEST_F(WarmStartTest, GarbageValuesAreRefusedAndCounted) {
  {
    const auto trie = StartWith(redis_.url());
    WriteThrough(*trie, "s", 100);
    WriteThrough(*trie, "t", 200);
  }
  const std::vector<std::string> keys = Keys();
  ASSERT_EQ(keys.size(), 4u);
  for (const std::string& key : keys) {
    // Records of another scope, an empty one, and a truncated one.
    redis_.Command({"LPUSH", key, "FTWR\x01 nonsense", "", "FTWR"});
  }
  auto trie = StartWith(redis_.url());
  EXPECT_TRUE(Eventually([&] { return Knows(*trie, "s", Output(100)); }));
  EXPECT_EQ(Events(*trie, "record_refused"), 6);
  trie = nullptr;
  redis_.Command({"FLUSHALL"});
  for (const std::string& key : keys) redis_.Command({"SET", key, "a string"});
  trie = StartWith(redis_.url());
  EXPECT_FALSE(Knows(*trie, "s", Output(100)));
  EXPECT_TRUE(Eventually([&] { return Events(*trie, "load_failed") == 1; }));
  EXPECT_TRUE(Up(*trie));
  Write(*trie, "s", Output(300));
  EXPECT_TRUE(Knows(*trie, "s", Output(300)));
  EXPECT_TRUE(Eventually([&] { return Events(*trie, "write_failed") == 2; }));
}

TEST(WarmStartLoginTest, ThePasswordIsUsedAndNeverLogged) {
  if (!PrivateRedis::Installed()) GTEST_SKIP() << "no redis-server";
  PrivateRedis redis("correct-horse");
  redis.Start();
  ::testing::internal::CaptureStderr();
  {
    const auto trie = StartWith(redis.url());
    EXPECT_TRUE(Eventually([&] { return Up(*trie); }));
    const auto refused = StartWith("unix://:wrong-horse@" + redis.socket());
    Write(*refused, "s", Output(100));
    EXPECT_TRUE(Knows(*refused, "s", Output(100)));
    EXPECT_FALSE(Up(*refused));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("is up"), Not(HasSubstr("horse"))));
}

// Accepts connections and answers whatever comes with the same bytes.
class ParrotServer {
 public:
  ParrotServer(const std::string& path, std::string answer)
      : answer_(std::move(answer)), listener_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(
        bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    EXPECT_EQ(listen(listener_, 8), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~ParrotServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  int answered() const { return answered_; }

 private:
  void Serve() {
    int fd = -1;
    while ((fd = accept(listener_, nullptr, nullptr)) >= 0) {
      char buffer[4096];
      while (read(fd, buffer, sizeof(buffer)) > 0) {
        if (send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0) break;
        ++answered_;
      }
      close(fd);
    }
  }

  const std::string answer_;
  const int listener_;
  std::atomic<int> answered_{0};
  std::thread thread_;
};

TEST(WarmStartGarbageTest, AServerThatIsNoRedisIsGivenUp) {
  for (const std::string& answer :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"),
        std::string("*2000000000\r\n$1\r\na\r\n"),
        std::string("$536870000\r\nabc"), std::string("+OK\r\n+OK\r\n"),
        std::string("-ERR secret\r\n"), std::string("\0\0\0\0", 4),
        std::string("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"),
        std::string(":99999999999999999999999\r\n")}) {
    TempDir dir;
    ParrotServer parrot(dir.File("sock"), answer);
    const auto trie = StartWith("unix://" + dir.File("sock"));
    EXPECT_TRUE(Eventually([&] { return parrot.answered() >= 2; })) << answer;
    Write(*trie, "s", Output(100));
    EXPECT_TRUE(Knows(*trie, "s", Output(100))) << answer;
    EXPECT_FALSE(Up(*trie)) << answer;
  }
}

// PING is answered well, everything else with the same.
TEST(WarmStartGarbageTest, AnswersOfAnotherKindAreNotTaken) {
  TempDir dir;
  ParrotServer parrot(dir.File("sock"), "+PONG\r\n");
  const auto trie = StartWith("unix://" + dir.File("sock"));
  ASSERT_TRUE(Eventually([&] { return Up(*trie); }));
  EXPECT_FALSE(Knows(*trie, "s", Output(100)));
  EXPECT_TRUE(Eventually([&] { return Events(*trie, "record_refused") == 2; }));
  Write(*trie, "s", Output(100));
  EXPECT_TRUE(Knows(*trie, "s", Output(100)));
}

}  // namespace
}  // namespace foretoken::testing
