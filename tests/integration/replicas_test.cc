// Several replicas of every service behind names, while some come and go.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/draft_worker/server.h"
#include "tests/integration/certificates.h"
#include "tests/integration/cluster.h"
#include "tests/integration/crest/crest_service.h"
#include "tests/integration/trie_drafter/draft_client.h"
#include "tests/support/eventually.h"
#include "tests/support/metric_samples.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {
namespace {

constexpr int kTokens = 60;
constexpr int kPrompts = 8;
constexpr int kClients = 8;
constexpr absl::Duration kDrain = absl::Seconds(20);
constexpr char kCrestLookups[] =
    "foretoken_crest_lookup_latency_seconds_count{path=\"memory\"}";

// A name server.
class FakeResolver final : public rpc::Resolver {
 public:
  absl::StatusOr<std::vector<std::string>> Resolve(
      const std::string& host_port) override {
    absl::MutexLock lock(&mu_);
    return addresses_[host_port];
  }
  void Set(const std::string& host_port, std::vector<std::string> addresses) {
    absl::MutexLock lock(&mu_);
    addresses_[host_port] = std::move(addresses);
  }

 private:
  absl::Mutex mu_;
  std::map<std::string, std::vector<std::string>> addresses_
      ABSL_GUARDED_BY(mu_);
};

// One process of a service.
struct Replica {
  std::string address;
  std::function<double()> rounds;  // it has served
  std::function<bool()> drain;
  std::function<void(bool)> set_serving;  // as its health says
};

Replica StartVerifierReplica() {
  const std::shared_ptr<TestVerifier> started = StartVerifier({});
  return {started->address(),
          [started] { return started->Sample("foretoken_passes_total"); },
          [started] { return started->server->Drain(kDrain); },
          [started](bool serving) { started->server->SetServing(serving); }};
}

Replica StartTrieReplica() {
  const std::shared_ptr<TestTrieDrafter> started = StartTrieDrafter();
  return {started->server->addresses().at(0),
          [started] { return started->Sample("foretoken_trie_rounds_total"); },
          [started] { return started->server->Drain(kDrain); },
          [started](bool serving) { started->server->SetServing(serving); }};
}

std::string WriteDatastore(const TempDir& dir) {
  const std::string path = dir.File("chat.crest");
  WriteSnapshot(path, MakeCrestSample(1, 100, 50));
  return path;
}

Replica StartCrestReplica(const std::string& snapshot) {
  crest::CrestService options;
  options.datastores = {"chat=" + snapshot};
  const std::shared_ptr<TestCrest> started = StartCrest(std::move(options));
  return {started->server->addresses().at(0),
          [started] { return started->Sample(kCrestLookups); },
          [started] { return started->server->Drain(kDrain); },
          [started](bool serving) { started->server->SetServing(serving); }};
}

struct TestDraftWorker {
  metrics::Registry registry;
  std::unique_ptr<draft_worker::DraftWorkerServer> service;
  std::unique_ptr<rpc::Server> server;
};

Replica StartWorkerReplica() {
  auto started = std::make_shared<TestDraftWorker>();
  FakeBackendOptions fake;
  fake.max_rows = 1024;
  started->service = std::make_unique<draft_worker::DraftWorkerServer>(
      draft_worker::DraftServerOptions(),
      std::make_unique<draft_worker::DraftEngine>(
          draft_worker::DraftEngineOptions(),
          std::make_unique<FakeBackend>(fake)),
      started->registry);
  rpc::ServerOptions listen;
  listen.listen = {"127.0.0.1:0"};
  auto server = rpc::Server::Start(listen, {started->service.get()});
  EXPECT_THAT(server, IsOk());
  started->server = *std::move(server);
  return {started->server->addresses().at(0),
          [started] {
            return metrics::SampleValue(started->registry.Text(),
                                        "foretoken_draft_worker_drafts_total")
                .value_or(-1);
          },
          [started] { return started->server->Drain(kDrain); },
          [started](bool serving) { started->server->SetServing(serving); }};
}

// A service: its name, and its replicas, which the name server knows.
class Group {
 public:
  Group(FakeResolver& resolver, const std::string& name,
        std::function<Replica()> start)
      : resolver_(resolver), name_(name), start_(std::move(start)) {
    Add();
    Add();
  }

  std::string target() const { return absl::StrCat("dns:///", name_); }
  const std::string& name() const { return name_; }

  void Add() {
    replicas_.push_back(start_());
    Publish();
  }
  // As in a cluster: it leaves the name server's answer and drains at once.
  void RemoveFirst() {
    const Replica first = replicas_.front();
    replicas_.erase(replicas_.begin());
    Publish();
    EXPECT_TRUE(first.drain()) << name_;
  }

  Replica& replica(size_t i) { return replicas_[i]; }

  std::vector<double> Rounds() const {
    std::vector<double> rounds;
    for (const Replica& replica : replicas_) rounds.push_back(replica.rounds());
    return rounds;
  }
  // Rounds that each replica has served since.
  std::vector<double> RoundsSince(const std::vector<double>& before) const {
    std::vector<double> rounds = Rounds();
    for (size_t i = 0; i < std::min(rounds.size(), before.size()); ++i) {
      rounds[i] -= before[i];
    }
    return rounds;
  }
  // Every replica has served some rounds since, and this share of them all.
  bool HasServedSince(const std::vector<double>& before,
                      double least_share = 0) const {
    const std::vector<double> rounds = RoundsSince(before);
    const double least = *std::min_element(rounds.begin(), rounds.end());
    const double all = std::accumulate(rounds.begin(), rounds.end(), 0.0);
    return least > 0 && least >= least_share * all;
  }

 private:
  void Publish() {
    std::vector<std::string> addresses;
    for (const Replica& replica : replicas_) {
      addresses.push_back(replica.address);
    }
    resolver_.Set(name_, addresses);
  }

  FakeResolver& resolver_;
  const std::string name_;
  const std::function<Replica()> start_;
  std::vector<Replica> replicas_;
};

v1::GenerateRequest RequestOf(int prompt, const std::string& mode,
                              const std::string& scope) {
  v1::GenerateRequest request =
      MakeRequest(MakePrompt(prompt, 40, 50), mode, kTokens);
  request.set_ignore_eos(true);
  request.set_cache_scope(scope);
  request.mutable_sampling()->set_seed(prompt);
  if (prompt % 2 == 1) request.mutable_sampling()->set_temperature(0.8f);
  return request;
}

// Sends requests, `clients` at once, as long as `until` runs. `request_of` is
// called with the client and the number of its request.
void RunLoad(const WireClient& client, int clients,
             const std::function<v1::GenerateRequest(int, int)>& request_of,
             const std::function<void(const v1::GenerateRequest&,
                                      const Generated&)>& check,
             absl::FunctionRef<void()> until) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      for (int number = 0; !stop; ++number) {
        const v1::GenerateRequest request = request_of(i, number);
        check(request, Generate(client, request));
      }
    });
  }
  until();
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

void ExpectOk(const v1::GenerateRequest&, const Generated& got) {
  FORETOKEN_EXPECT_OK(got.status);
}

class ReplicasTest : public ::testing::Test {
 protected:
  ReplicasTest()
      : verifiers_(*resolver_, "verifiers.test:1", StartVerifierReplica),
        tries_(*resolver_, "tries.test:1", StartTrieReplica),
        workers_(*resolver_, "workers.test:1", StartWorkerReplica),
        crests_(*resolver_, "crests.test:1",
                [this] { return StartCrestReplica(snapshot_); }) {
    orchestrator::OrchestratorService config;
    config.verifiers = {verifiers_.target()};
    config.drafters = {{"trie_drafter", {tries_.target()}},
                       {"draft_worker", {workers_.target()}},
                       {"crest", {crests_.target()}}};
    config.server.drafters.crest_datastore = "chat";
    config.verifier_channel.insecure = true;
    config.drafter_channel.insecure = true;
    config.discovery.interval = absl::Milliseconds(20);
    config.discovery.resolver = resolver_;
    orchestrator_ = StartOrchestrator(config);
  }

  std::vector<Group*> groups() {
    return {&verifiers_, &tries_, &workers_, &crests_};
  }
  // Waits until all replicas of all services serve rounds.
  void ExpectAllServe() {
    for (Group* group : groups()) {
      const std::vector<double> before = group->Rounds();
      EXPECT_TRUE(Eventually([&] { return group->HasServedSince(before); }))
          << group->name() << ": " << ::testing::PrintToString(group->Rounds())
          << " after " << ::testing::PrintToString(before);
    }
  }

  const TempDir dir_;
  const std::string snapshot_ = WriteDatastore(dir_);
  std::shared_ptr<FakeResolver> resolver_ = std::make_shared<FakeResolver>();
  Group verifiers_, tries_, workers_, crests_;
  std::unique_ptr<TestOrchestrator> orchestrator_;
};

TEST_F(ReplicasTest, AllGetRoundsWhileSomeComeAndGoAndNoTokenChanges) {
  ASSERT_TRUE(Eventually([&] { return orchestrator_->service->Ready(); }));
  std::vector<std::vector<TokenId>> expected;
  for (int prompt = 0; prompt < kPrompts; ++prompt) {
    const Generated off =
        Generate(*orchestrator_->client, RequestOf(prompt, "off", ""));
    FORETOKEN_ASSERT_OK(off.status);
    expected.push_back(off.tokens);
  }

  const std::vector<std::string> modes = {"ngram_trie", "draft_model",
                                          "ouroboros", "crest", "auto"};
  std::atomic<int> served{0}, wrong{0};
  absl::Mutex mu;
  std::vector<absl::Status> failures;
  const auto request_of = [&](int client, int i) {
    // Half of the requests have a scope, one of eight.
    return RequestOf((client + i) % kPrompts, modes[i % modes.size()],
                     i % 2 == 0 ? "" : absl::StrCat("scope-", i / 2 % 8));
  };
  const auto check = [&](const v1::GenerateRequest& request,
                         const Generated& got) {
    ++served;
    if (!got.status.ok()) {
      absl::MutexLock lock(&mu);
      failures.push_back(got.status);
    } else if (got.tokens != expected[request.sampling().seed()]) {
      ++wrong;
    }
  };
  RunLoad(*orchestrator_->client, kClients, request_of, check, [&] {
    ExpectAllServe();
    for (Group* group : groups()) group->Add();
    ExpectAllServe();
    for (Group* group : groups()) group->RemoveFirst();
    ExpectAllServe();
    // Of those that left, nothing is kept.
    orchestrator::DraftServices& drafters = orchestrator_->service->drafters();
    EXPECT_TRUE(Eventually([&] {
      return orchestrator_->service->pool().size() == 2 &&
             drafters.Replicas("trie_drafter").size() == 2 &&
             drafters.Replicas("draft_worker").size() == 2 &&
             drafters.Replicas("crest").size() == 2;
    }));
  });
  EXPECT_GT(served, 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(failures.empty())
      << failures.size() << " of " << served << ", first " << failures[0];
}

TEST_F(ReplicasTest, RequestsWithoutAScopeSpreadEvenly) {
  ASSERT_TRUE(Eventually([&] { return orchestrator_->service->Ready(); }));
  const std::vector<std::string> modes = {"ngram_trie", "draft_model", "crest"};
  const auto request_of = [&](int client, int i) {
    return RequestOf((client + i) % kPrompts, modes[(client + i) % 3], "");
  };
  std::map<Group*, std::vector<double>> before;
  for (Group* group : groups()) before[group] = group->Rounds();
  RunLoad(*orchestrator_->client, kClients, request_of, ExpectOk, [&] {
    for (Group* group : groups()) {
      // Half of them each, but for the noise of the first ones.
      EXPECT_TRUE(Eventually([&] {
        return group->HasServedSince(before[group], 0.3);
      })) << group->name()
          << ": "
          << ::testing::PrintToString(group->RoundsSince(before[group]));
    }
  });
}

TEST_F(ReplicasTest, OneHotScopeReachesAllThatKeepNoHistoryOfIt) {
  ASSERT_TRUE(Eventually([&] { return orchestrator_->service->Ready(); }));
  for (Group* group : {&crests_, &workers_}) {
    const std::string mode = group == &crests_ ? "crest" : "draft_model";
    const auto request_of = [&](int client, int i) {
      return RequestOf((client + i) % kPrompts, mode, "one scope");
    };
    const std::vector<double> before = group->Rounds();
    // More than the owner takes while the other one is idle.
    RunLoad(*orchestrator_->client, 2 * kClients, request_of, ExpectOk, [&] {
      EXPECT_TRUE(Eventually([&] { return group->HasServedSince(before); }))
          << group->name() << ": "
          << ::testing::PrintToString(group->RoundsSince(before));
    });
  }
}

TEST_F(ReplicasTest, APromptOfAScopeStaysOnOneVerifierAndPromptsSpread) {
  ASSERT_TRUE(Eventually([&] { return orchestrator_->service->Ready(); }));
  constexpr int kSpread = 16;  // all on one verifier: once in 32768 runs
  std::set<int> homes;
  for (int prompt = 0; prompt < kSpread; ++prompt) {
    v1::GenerateRequest request =
        MakeRequest(MakePrompt(prompt, 300, 50), "off", 5);
    request.set_cache_scope("one scope");
    std::set<int> used;
    for (int i = 0; i < 3; ++i) {
      const std::vector<double> before = verifiers_.Rounds();
      FORETOKEN_ASSERT_OK(Generate(*orchestrator_->client, request).status);
      const std::vector<double> passes = verifiers_.RoundsSince(before);
      for (int id = 0; id < 2; ++id) {
        // An earlier request's last pass may be counted late.
        if (passes[id] > 1) used.insert(id);
      }
    }
    EXPECT_EQ(used.size(), 1u) << "prompt " << prompt;
    homes.insert(used.begin(), used.end());
  }
  EXPECT_EQ(homes.size(), 2u);
}

TEST_F(ReplicasTest, AScopeKeepsItsHistoryInOnePlace) {
  ASSERT_TRUE(Eventually([&] { return orchestrator_->service->Ready(); }));
  for (int i = 0; i < 6; ++i) {
    FORETOKEN_ASSERT_OK(Generate(*orchestrator_->client,
                                 RequestOf(i, "ngram_trie", "one scope"))
                            .status);
  }
  const std::vector<double> rounds = tries_.Rounds();
  EXPECT_EQ(std::min(rounds[0], rounds[1]), 0);
  EXPECT_GT(std::max(rounds[0], rounds[1]), 0);
}

TEST_F(ReplicasTest, OneThatSaysThatItDoesNotServeGetsNoSessions) {
  ASSERT_TRUE(Eventually([&] { return orchestrator_->service->Ready(); }));
  const auto run = [&](const std::string& scope) {
    FORETOKEN_EXPECT_OK(
        Generate(*orchestrator_->client, RequestOf(0, "ngram_trie", scope))
            .status);
  };
  // Rounds that the replica gets of as many requests as reach every replica.
  const auto share = [&](size_t replica) {
    const double before = tries_.Rounds()[replica];
    for (int i = 0; i < 8; ++i) run("");
    for (int i = 0; i < 8; ++i) run(absl::StrCat("scope-", i));
    return tries_.Rounds()[replica] - before;
  };
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(Eventually([&] { return share(i) > 0; }));
  }
  for (size_t i = 0; i < 2; ++i) {
    tries_.replica(i).set_serving(false);
    EXPECT_TRUE(Eventually([&] { return share(i) == 0; }));
    EXPECT_GT(share(1 - i), 0);
    tries_.replica(i).set_serving(true);
    EXPECT_TRUE(Eventually([&] { return share(i) > 0; }));
  }
}

TEST(ReplicasOfTlsTest, TheirCertificateNamesTheHostThatWasResolved) {
  const TempDir dir;
  const Certificates files = MakeCertificates(dir, "ca", "DNS:verifiers.test");
  TestVerifierOptions options;
  options.rpc.tls_cert = files.cert;
  options.rpc.tls_key = files.key;
  const auto verifier = StartVerifier(std::move(options));
  const auto resolver = std::make_shared<FakeResolver>();
  resolver->Set("verifiers.test:1", {verifier->address()});

  orchestrator::OrchestratorService config;
  config.verifiers = {"dns:///verifiers.test:1"};
  config.verifier_channel.tls_ca = files.ca;
  config.discovery.interval = absl::Milliseconds(20);
  config.discovery.resolver = resolver;
  const auto orchestrator = StartOrchestrator(config);
  ASSERT_TRUE(Eventually([&] { return orchestrator->service->Ready(); }));
  FORETOKEN_EXPECT_OK(
      Generate(*orchestrator->client, MakeRequest({1, 2, 3}, "off", 5)).status);
}

TEST(ConnectionAgeTest, AStreamOutlivesItsConnectionsAgeAndGrace) {
  TestVerifierOptions options;
  options.fake.before_pass = [] { absl::SleepFor(absl::Milliseconds(20)); };
  const auto verifier = StartVerifier(std::move(options));
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  rpc::ServerOptions listen;
  listen.max_connection_age = absl::Milliseconds(200);
  listen.max_connection_age_grace = absl::ZeroDuration();
  const auto orchestrator = StartOrchestrator(config, listen);
  ASSERT_TRUE(Eventually([&] { return orchestrator->service->Ready(); }));
  v1::GenerateRequest request = MakeRequest({1, 2, 3}, "off", kTokens);
  request.set_ignore_eos(true);
  const absl::Time start = absl::Now();
  const Generated got = Generate(*orchestrator->client, request);
  FORETOKEN_EXPECT_OK(got.status);
  EXPECT_EQ(got.tokens.size(), static_cast<size_t>(kTokens));
  EXPECT_GT(absl::Now() - start, 3 * listen.max_connection_age);
}

}  // namespace
}  // namespace foretoken::testing
