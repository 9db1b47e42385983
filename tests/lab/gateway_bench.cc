// What the gateway costs: processor time by delta, and tokens a second through
// HTTP beside those of the same requests over gRPC.
//
//   bench_gateway --alone [--streams=16] [--tick=2ms] [--deltas=20000]
//       the gateway in this process, as in foretoken-local, before deltas of
//       three tokens that come to all streams at every tick; beside it what the
//       kernel takes to send() as many bytes to as many readers
//   bench_gateway --http=HOST:PORT --grpc=HOST:PORT [--pid=N] [--mode=auto]
//       [--streams=16] [--requests=64] [--tokens=128] [--pairs=8]
//       a running gateway and the orchestrator behind it (foretoken-local: the
//       same process); closed loops in interleaved pairs, the first of which
//       does not count. --pid: the process whose time is counted
//
// Prints one JSON object; times in microseconds.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/flags.h"
#include "common/generation/blocking.h"
#include "common/generation/generator.h"
#include "common/rpc/generation_client.h"
#include "services/gateway/server.h"
#include "tests/support/raw_connection.h"
#include "tools/cli/mode_bench/statistics.h"

namespace foretoken::bench {
namespace {

constexpr size_t kFrameBytes =
    220;  // of a delta's frame, chunk header included

struct Options {
  bool alone = false;
  std::string http;
  std::string grpc;
  int32_t pid = 0;
  std::string mode = "auto";
  int32_t streams = 16;
  int32_t requests = 64;
  int32_t tokens = 128;
  int32_t pairs = 8;
  int64_t deltas = 20000;
  absl::Duration tick = absl::Milliseconds(2);
};

// --- Clients -----------------------------------------------------------------

struct Counts {
  int64_t tokens = 0;
  int64_t deltas = 0;

  Counts& operator+=(const Counts& other) {
    tokens += other.tokens;
    deltas += other.deltas;
    return *this;
  }
};

int64_t Occurrences(absl::string_view text, absl::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

std::string PromptOf(int index) {
  return absl::StrCat("Story ", index, ". Once upon a time there was a ",
                      index % 2 == 0 ? "girl" : "boy", " who had ", index + 2,
                      " friends, and one day");
}

// One streamed request on a connection of its own; dies if it fails.
Counts AskHttp(const Options& options, int index) {
  const Json body = {{"prompt", PromptOf(index)},
                     {"max_tokens", options.tokens},
                     {"ignore_eos", true},
                     {"temperature", 0},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}},
                     {"speculation", options.mode}};
  const std::string text = DumpJson(body);
  const testing::RawConnection connection(options.http);
  FORETOKEN_CHECK(connection.connected());
  FORETOKEN_CHECK(connection.Say(
      absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                   "Content-Type: application/json\r\nConnection: close\r\n"
                   "Content-Length: ",
                   text.size(), "\r\n\r\n", text)));
  const std::string answer = connection.ReadAll();
  const std::vector<std::string> parts =
      absl::StrSplit(answer, "\"completion_tokens\":");
  Counts counts;
  FORETOKEN_CHECK(parts.size() > 1);
  FORETOKEN_CHECK(
      absl::SimpleAtoi(parts.back().substr(0, parts.back().find_first_of(",}")),
                       &counts.tokens));
  counts.deltas = Occurrences(answer, "\"finish_reason\":null");
  return counts;
}

Counts AskGrpc(const Options& options, rpc::GenerationClient& client,
               int index) {
  GenerationRequest request;
  request.text = PromptOf(index);
  request.sampling.temperature = 0;
  request.max_tokens = options.tokens;
  request.ignore_eos = true;
  auto mode = Mode::Parse(options.mode);
  FORETOKEN_CHECK(mode.ok());
  request.mode = *std::move(mode);
  request.deadline = MonotonicNow() + absl::Minutes(10);
  Counts counts;
  const auto result = foretoken::Generate(
      client, std::move(request), [&](const GenerationDelta& delta) {
        counts.deltas += delta.token_ids.empty() ? 0 : 1;
        return absl::OkStatus();
      });
  FORETOKEN_CHECK(result.ok());
  counts.tokens = result->completion_tokens;
  return counts;
}

// A closed loop of `streams` clients.
template <typename Ask>
std::pair<Counts, absl::Duration> Load(const Options& options, const Ask& ask) {
  std::atomic<int> next{0};
  absl::Mutex mu;
  Counts counts;
  std::vector<std::thread> threads;
  const absl::Time start = absl::Now();
  for (int i = 0; i < options.streams; ++i) {
    threads.emplace_back([&] {
      for (int index = next++; index < options.requests; index = next++) {
        const Counts one = ask(index);
        absl::MutexLock lock(&mu);
        counts += one;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {counts, absl::Now() - start};
}

// --- Processor time ----------------------------------------------------------

// User and system time of a process, in steps of a tick of its clock.
absl::Duration TimeOf(int pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(stat), {}};
  // Behind the name, which may hold anything, the 12th and 13th field.
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(text.rfind(')') + 2), ' ');
  FORETOKEN_CHECK(fields.size() > 13);
  int64_t user = 0, system = 0;
  FORETOKEN_CHECK(absl::SimpleAtoi(fields[11], &user) &&
                  absl::SimpleAtoi(fields[12], &system));
  return absl::Seconds(static_cast<double>(user + system) /
                       sysconf(_SC_CLK_TCK));
}

absl::Duration OwnTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) +
         absl::DurationFromTimeval(usage.ru_stime);
}

Json IntervalJson(const mode_bench::Interval& interval) {
  return {
      {"mean", interval.mean}, {"low", interval.low}, {"high", interval.high}};
}

// --- Beside gRPC -------------------------------------------------------------

absl::Status Compare(const Options& options) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto client,
                             rpc::GenerationClient::Connect(options.grpc, {}));
  std::vector<double> log_ratios;
  std::vector<double> micros;
  Json http = Json::array();
  Json grpc = Json::array();
  for (int pair = 0; pair <= options.pairs; ++pair) {
    double rates[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const bool over_http = (turn + pair) % 2 == 0;
      const absl::Duration before =
          options.pid > 0 ? TimeOf(options.pid) : absl::ZeroDuration();
      const auto [counts, time] = Load(options, [&](int index) {
        return over_http ? AskHttp(options, index)
                         : AskGrpc(options, *client, index);
      });
      rates[over_http] =
          static_cast<double>(counts.tokens) / absl::ToDoubleSeconds(time);
      if (pair == 0) continue;
      (over_http ? http : grpc).push_back(rates[over_http]);
      if (over_http && options.pid > 0) {
        micros.push_back(
            absl::ToDoubleMicroseconds(TimeOf(options.pid) - before) /
            static_cast<double>(counts.deltas));
      }
    }
    if (pair > 0) log_ratios.push_back(std::log(rates[1] / rates[0]));
  }
  Json result = {
      {"http_tokens_per_s", http},
      {"grpc_tokens_per_s", grpc},
      {"ratio", IntervalJson(mode_bench::GeometricInterval(log_ratios))}};
  if (options.pid > 0) {
    result["micros_per_delta"] = IntervalJson(mode_bench::MeanInterval(micros));
  }
  std::printf("%s\n", DumpJson(result).c_str());
  return absl::OkStatus();
}

// --- Alone -------------------------------------------------------------------

// Writes three tokens to every stream at every tick.
class TickingGenerator final : public Generator {
 public:
  explicit TickingGenerator(const Options& options)
      : options_(options), thread_([this] { Run(); }) {}
  ~TickingGenerator() override {
    stop_ = true;
    thread_.join();
  }

  absl::StatusOr<GeneratorInfo> Info(absl::Time) override {
    GeneratorInfo info;
    info.model = "ticking";
    info.max_positions = 1 << 20;
    info.modes = {"off"};
    info.default_mode = "off";
    return info;
  }
  bool Ready() override { return true; }
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) override {
    auto call = std::make_shared<Call>();
    call->left = request.max_tokens;
    call->listener = std::move(listener);
    absl::MutexLock lock(&mu_);
    calls_.push_back(call);
    return call;
  }
  // The clients here ask for no texts.
  std::shared_ptr<PendingCall> Tokenize(const Caller&, std::string, bool,
                                        absl::Time, OnTokens) override {
    FORETOKEN_CHECK(false);
    return nullptr;
  }
  std::shared_ptr<PendingCall> Detokenize(const Caller&, std::vector<TokenId>,
                                          absl::Time, OnText) override {
    FORETOKEN_CHECK(false);
    return nullptr;
  }

  int64_t deltas() const { return deltas_; }

 private:
  struct Call final : GenerationCall {
    void Resume() override {}
    void Cancel() override {}

    std::shared_ptr<GenerationListener> listener;
    int64_t left = 0;
  };

  void Run() {
    GenerationDelta delta;
    delta.text = " upon a time";
    delta.token_ids = {17, 4711, 99};
    delta.drafters.assign(3, DrafterId::kTarget);
    std::vector<std::shared_ptr<Call>> calls;
    while (!stop_) {
      absl::SleepFor(options_.tick);
      {
        absl::MutexLock lock(&mu_);
        calls = calls_;
      }
      for (const auto& call : calls) {
        if (call->left <= 0) continue;
        call->left -= 3;
        // A paused listener gets its delta all the same: readers are quick.
        call->listener->OnDelta(delta);
        ++deltas_;
        if (call->left > 0) continue;
        GenerationSummary summary;
        summary.mode = "off";
        summary.finish = FinishReason::kLength;
        call->listener->OnResult(summary);
        call->listener->OnEnd(absl::OkStatus());
        call->listener.reset();
      }
    }
  }

  const Options options_;
  absl::Mutex mu_;
  std::vector<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mu_);
  std::atomic<int64_t> deltas_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A listening socket of this machine, and its address.
struct Listening {
  int fd = -1;
  sockaddr_in address{};
};

Listening ListenAnywhere() {
  Listening to;
  to.fd = socket(AF_INET, SOCK_STREAM, 0);
  to.address.sin_family = AF_INET;
  to.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* address = reinterpret_cast<sockaddr*>(&to.address);
  socklen_t length = sizeof(to.address);
  FORETOKEN_CHECK(bind(to.fd, address, length) == 0 &&
                  listen(to.fd, SOMAXCONN) == 0 &&
                  getsockname(to.fd, address, &length) == 0);
  return to;
}

// In a process of its own: reads `streams` answers to their end, and then as
// many bare connections.
[[noreturn]] void RunClients(Options options, int address_fd,
                             const Listening& bare) {
  char address[64] = {};
  FORETOKEN_CHECK(read(address_fd, address, sizeof(address) - 1) > 0);
  options.http = address;
  options.mode = "off";
  options.requests = options.streams;
  options.tokens = static_cast<int32_t>(3 * options.deltas / options.streams);
  Load(options, [&](int index) { return AskHttp(options, index); });
  options.http = absl::StrCat("127.0.0.1:", ntohs(bare.address.sin_port));
  Load(options, [&](int) {
    testing::RawConnection(options.http).ReadAll();
    return Counts();
  });
  _exit(0);
}

// Microseconds of a send() of `bytes` bytes to a reader that waits for them.
double BareSend(const Options& options, const Listening& listening,
                size_t bytes) {
  std::vector<int> readers;
  for (int i = 0; i < options.streams; ++i) {
    const int fd = accept(listening.fd, nullptr, nullptr);
    FORETOKEN_CHECK(fd >= 0);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    readers.push_back(fd);
  }
  const std::string data(bytes, 'x');
  const int64_t ticks = options.deltas / options.streams;
  const absl::Duration before = OwnTime();
  for (int64_t tick = 0; tick < ticks; ++tick) {
    absl::SleepFor(options.tick);
    for (const int fd : readers) {
      FORETOKEN_CHECK(send(fd, data.data(), data.size(), MSG_NOSIGNAL) > 0);
    }
  }
  const absl::Duration time = OwnTime() - before;
  for (const int fd : readers) close(fd);
  return absl::ToDoubleMicroseconds(time) /
         static_cast<double>(ticks * options.streams);
}

absl::Status Alone(const Options& options) {
  int fds[2];
  FORETOKEN_CHECK(pipe(fds) == 0);
  const Listening bare = ListenAnywhere();
  const pid_t clients = fork();  // while there is one thread
  FORETOKEN_CHECK(clients >= 0);
  if (clients == 0) RunClients(options, fds[0], bare);
  gateway::GatewayServerOptions server_options;
  server_options.http.listen = {"127.0.0.1:0"};
  metrics::Registry registry;
  auto generator = std::make_unique<TickingGenerator>(options);
  const TickingGenerator& ticking = *generator;
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto server, gateway::GatewayServer::Start(
                             server_options, std::move(generator), registry));
  const std::string address = server->addresses().at(0);
  const absl::Duration before = OwnTime();
  const absl::Time start = absl::Now();
  FORETOKEN_CHECK(write(fds[1], address.data(), address.size()) > 0);
  const int64_t deltas =
      options.streams *
      ((3 * options.deltas / options.streams + 2) / 3);  // of three tokens
  while (ticking.deltas() < deltas) absl::SleepFor(absl::Milliseconds(10));
  const absl::Duration wall = absl::Now() - start;
  const absl::Duration time = OwnTime() - before;
  const double send = BareSend(options, bare, kFrameBytes);
  int status = 0;
  FORETOKEN_CHECK(waitpid(clients, &status, 0) == clients);
  if (status != 0) return absl::InternalError("the clients failed");
  std::printf("%s\n",
              DumpJson({{"deltas", ticking.deltas()},
                        {"deltas_per_s",
                         ticking.deltas() / absl::ToDoubleSeconds(wall)},
                        {"micros_per_delta", absl::ToDoubleMicroseconds(time) /
                                                 static_cast<double>(deltas)},
                        {"bare_send_micros", send}})
                  .c_str());
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  Options options;
  Flags flags("bench_gateway", "What the gateway costs.");
  flags.Bool("alone", &options.alone, "The gateway in this process, alone");
  flags.String("http", &options.http, "Address of a gateway");
  flags.String("grpc", &options.grpc, "Address of the orchestrator behind it");
  flags.Int("pid", &options.pid, {0, 1 << 30}, "Process whose time is counted");
  flags.String("mode", &options.mode, "Drafting mode");
  flags.Int("streams", &options.streams, {1, 512}, "Requests at once");
  flags.Int("requests", &options.requests, {1, 100000}, "Requests of a turn");
  flags.Int("tokens", &options.tokens, {1, 100000}, "Tokens of an answer");
  flags.Int("pairs", &options.pairs, {1, 1000}, "Interleaved pairs");
  flags.Int64("deltas", &options.deltas, {1, 10'000'000}, "Deltas in all");
  flags.Duration("tick", &options.tick,
                 {absl::Microseconds(100), absl::Seconds(1)},
                 "Time from delta to delta");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  return options.alone ? Alone(options) : Compare(options);
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  // As in the servers: without a search for deadlocks at every lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const absl::Status status = foretoken::bench::Run(argc, argv);
  return status.ok() ? 0 : foretoken::ExitWithError(status);
}
