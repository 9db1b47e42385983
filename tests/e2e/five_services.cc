#include "tests/e2e/five_services.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/file.h"
#include "common/metrics/registry.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/health.h"
#include "common/speculation/modes.h"
#include "tests/support/metric_samples.h"
#include "tests/support/test_data.h"

namespace foretoken::testing {
namespace {

constexpr int kMaxTokens = 200;
constexpr size_t kPromptBytes = 500;
constexpr char kDatastore[] = "text";
constexpr std::array<const char*, 5> kNames = {
    "verifier", "draft-worker", "trie-drafter", "crest", "orchestrator"};

std::string Target() { return SourcePath("tools/demo/target"); }
std::string Corpus() { return SourcePath("tools/train_demo"); }

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// Returns a free port below the ephemeral range, so that no connection of
// another test gets it. Each process starts at a different port.
int FreePort() {
  static int next = 10000 + getpid() % 2000 * 10;
  while (true) {
    FORETOKEN_CHECK(next < 32768);
    const int port = next++;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(port);
    const int bound =
        bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    close(fd);
    if (bound == 0) return port;
  }
}

// What an HTTP server on that port says to GET /metrics; "" where there is
// none.
std::string GetMetrics(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(port);
  std::string page;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0) {
    const std::string get = "GET /metrics HTTP/1.0\r\n\r\n";
    if (write(fd, get.data(), get.size()) == static_cast<ssize_t>(get.size())) {
      std::array<char, 4096> chunk;
      ssize_t n = 0;
      while ((n = read(fd, chunk.data(), chunk.size())) > 0) {
        page.append(chunk.data(), n);
      }
    }
  }
  close(fd);
  return page;
}

}  // namespace

int64_t Written::answered() const {
  int64_t rounds = 0;
  for (const auto& drafter : result.speculation().by_drafter()) {
    rounds += drafter.rounds();
  }
  return rounds;
}

bool FiveServices::Possible() {
  return PrivatePostgres::Installed() && PrivateRedis::Installed();
}

FiveServices::FiveServices() {
  redis_.Start();
  setenv("FORETOKEN_POSTGRES_URL", postgres_.url().c_str(), 1);
  for (int& port : ports_) port = FreePort();
  for (int& port : metrics_ports_) port = FreePort();
  Run({Binary("foretoken"), "crest", "build", "--corpus", Corpus(), "--suffix",
       ".py", "--tokenizer", Target(), "--max-n", "3", "--top", "2000",
       "--name", kDatastore, "--work", dir_.File("work")});
  Run({Binary("foretoken"), "prior", "build", "--corpus", Corpus(),
       "--tokenizer", Target(), "--max-bytes", "200000", "--out",
       dir_.File("prior")});
  for (int i = 0; i < kParts; ++i) Start(static_cast<Part>(i));
  auto client = WireClient::Connect(address(Part::kOrchestrator), {});
  FORETOKEN_CHECK(client.ok());
  client_ = *std::move(client);
}

std::string FiveServices::Binary(const std::string& name) const {
  return absl::StrCat(FORETOKEN_BINARIES, "/", name);
}

void FiveServices::Run(std::vector<std::string> args) const {
  FORETOKEN_CHECK(Process(std::move(args)).End(0) == 0);
}

std::string FiveServices::address(Part part) const {
  return absl::StrCat("127.0.0.1:", ports_[Index(part)]);
}

std::vector<std::string> FiveServices::Flags(Part part) const {
  switch (part) {
    case Part::kVerifier:
      return {"--model", Target(), "--threads=1"};
    case Part::kDraftWorker:
      return {"--model", SourcePath("tools/demo/draft"), "--threads=1"};
    case Part::kTrieDrafter:
      return {"--tokenizer",
              Target(),
              "--prior",
              dir_.File("prior"),
              "--redis-url",
              redis_.url(),
              "--redis-timeout=200ms",
              "--redis-max-pause=200ms"};
    case Part::kCrest:
      return {"--datastore", absl::StrCat(kDatastore, "=postgres"),
              "--tokenizer", Target(), "--watch-interval=100ms"};
    case Part::kOrchestrator:
      return {"--verifiers", address(Part::kVerifier), "--draft-worker",
              address(Part::kDraftWorker), "--trie-drafter",
              address(Part::kTrieDrafter), "--crest", address(Part::kCrest),
              "--crest-datastore", kDatastore, "--tokenizer", Target(),
              // All of it quicker than in the field.
              "--breaker-silence=100ms", "--breaker-backoff=50ms",
              "--breaker-max-backoff=500ms"};
  }
  return {};
}

void FiveServices::Start(Part part) {
  Start(part, absl::StrCat("foretoken-", kNames[Index(part)]), {});
}

void FiveServices::ServeRestToo() {
  Run({Binary("foretoken-lab"), "build-rest", "--corpus", Corpus(), "--suffix",
       ".py", "--tokenizer", Target(), "--out", dir_.File("rest")});
  processes_[Index(Part::kCrest)] = nullptr;
  Start(Part::kCrest, "foretoken-lab-crest",
        {"--rest", absl::StrCat(kRestDatastore, "=", dir_.File("rest"))});
}

void FiveServices::Start(Part part, const std::string& program,
                         const std::vector<std::string>& more) {
  const size_t i = Index(part);
  std::vector<std::string> args = {
      Binary(program), "--listen", address(part), "--metrics-listen",
      absl::StrCat("127.0.0.1:", metrics_ports_[i])};
  for (std::string& flag : Flags(part)) args.push_back(std::move(flag));
  args.insert(args.end(), more.begin(), more.end());
  // Clients that hang are noticed sooner than in the field.
  args.insert(args.end(), {"--keepalive-time=2s", "--keepalive-timeout=5s"});
  processes_[i] = std::make_unique<Process>(std::move(args));
  // A new channel each time: none that waits after a first refusal.
  FORETOKEN_CHECK(Soon([&] {
    const auto channel = rpc::CreateChannel(address(part), {});
    FORETOKEN_CHECK(channel.ok());
    return rpc::IsServing(*channel, "", absl::Now() + absl::Seconds(5))
        .value_or(false);
  }));
}

double FiveServices::Metric(Part part, const std::string& sample) const {
  return metrics::SampleValue(GetMetrics(metrics_ports_[Index(part)]), sample)
      .value_or(-1);
}

Written FiveServices::Write(const std::string& mode,
                            const std::function<void()>& at_fifth) const {
  v1::GenerateRequest request;
  const auto text = ReadFile(Corpus() + "/model.py");
  FORETOKEN_CHECK(text.ok() && text->size() > kPromptBytes);
  request.set_text(text->substr(0, kPromptBytes));
  request.set_max_tokens(kMaxTokens);
  request.set_ignore_eos(true);
  request.set_cache_scope("scope");
  request.mutable_sampling()->set_temperature(0.8f);
  request.mutable_sampling()->set_seed(7);
  FORETOKEN_CHECK(
      rpc::ToProto(*Mode::Parse(mode), request.mutable_speculation()).ok());
  Written written;
  int deltas = 0;
  auto result = client_->Generate(
      request, absl::Now() + absl::Minutes(3),
      [&](const v1::GenerateDelta& delta) {
        written.tokens.insert(written.tokens.end(), delta.token_ids().begin(),
                              delta.token_ids().end());
        if (++deltas == 5 && at_fifth) at_fifth();
        return true;
      });
  written.status = result.status();
  if (result.ok()) written.result = *std::move(result);
  return written;
}

bool Soon(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + absl::Minutes(2);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace foretoken::testing
