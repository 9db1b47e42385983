#include "tests/attack/attacks.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "grpc/compression.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "tests/attack/http2_connection.h"
#include "tests/support/wire_client.h"

namespace foretoken::attack {
namespace {

constexpr char kGenerate[] = "/foretoken.v1.Generation/Generate";
// Pause of an attacker between two steps: bounds the rate of attacks, so that
// they load the server and not the whole machine.
constexpr absl::Duration kPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestSleep = absl::Milliseconds(100);
constexpr absl::Duration kConnectPause = absl::Milliseconds(1);
// The same for a connection that replaces one which the server has closed.
constexpr absl::Duration kReplacePause = absl::Milliseconds(20);
constexpr int kCallsOfAConnection = 64;
// The largest texts and lists of ids: of a message (16 MiB by default), and of
// a prompt (4 MiB).
constexpr int kMessageTextBytes = (16 << 20) - 64;
constexpr int kMessageIds = 8 << 20;
constexpr int kPromptTextBytes = 4 << 20;
constexpr int kPromptIds = 1 << 20;
// A text of zeros before it is compressed.
constexpr size_t kBombBytes = 64 << 20;

void Rest(const std::atomic<bool>& stop, absl::Duration time) {
  const absl::Time end = MonotonicNow() + time;
  while (!stop) {
    const absl::Duration left = end - MonotonicNow();
    if (left <= absl::ZeroDuration()) return;
    absl::SleepFor(std::min(left, kLongestSleep));
  }
}

// Keeps `count` connections open and replaces those that the server closes.
// `speak` is called with each new one and at intervals afterwards; it returns
// false for one that is of no more use.
void HoldConnections(const Attacker& attacker, const std::string& address,
                     int count,
                     const std::function<bool(Http2Connection&, bool)>& speak) {
  Tally& tally = attacker.tally;
  std::vector<Http2Connection> open;
  while (!attacker.stop) {
    if (static_cast<int>(open.size()) < count) {
      ++tally.tried;
      Http2Connection made(address, 4096);
      if (made.connected() && speak(made, /*fresh=*/true)) {
        open.push_back(std::move(made));
      } else {
        ++tally.refused;
      }
      absl::SleepFor(tally.tried <= count ? kConnectPause : kReplacePause);
      if (tally.tried % 64 != 0) continue;
    } else {
      Rest(attacker.stop, absl::Milliseconds(100));
    }
    std::vector<Http2Connection> left;
    for (Http2Connection& connection : open) {
      if (speak(connection, /*fresh=*/false)) {
        left.push_back(std::move(connection));
      } else {
        ++tally.refused;
      }
    }
    open = std::move(left);
  }
}

void IdleConnections(const Attacker& attacker) {
  HoldConnections(
      attacker, attacker.target.server, 32 * attacker.target.scale,
      [](Http2Connection& connection, bool) { return connection.Drain(); });
}

// Connections that stop in the HTTP/2 preface, before any call.
void HalfSpokenConnections(const Attacker& attacker) {
  HoldConnections(attacker, attacker.target.server, attacker.target.scale,
                  [](Http2Connection& connection, bool fresh) {
                    return fresh ? connection.Send("PRI * HTTP/2.0\r\n")
                                 : connection.Drain();
                  });
}

// Calls that send their headers but never the request.
void HeaderOnlyCalls(const Attacker& attacker) {
  HoldConnections(
      attacker, attacker.target.server, attacker.target.scale / 8 + 1,
      [&](Http2Connection& connection, bool fresh) {
        if (!fresh) return connection.Drain();
        if (!connection.SendPreface()) return false;
        for (int i = 0; i < kCallsOfAConnection; ++i) {
          if (connection.BeginCall(kGenerate, attacker.target.token) == 0)
            return false;
        }
        return true;
      });
}

v1::GenerateRequest SmallRequest(int tokens) {
  v1::GenerateRequest request;
  for (int i = 1; i <= 8; ++i) {
    request.mutable_token_ids()->add_ids(i);
  }
  request.set_max_tokens(tokens);
  request.set_ignore_eos(true);
  return request;
}

// Streams whose answers are never read: the windows of the socket and of every
// stream close.
void ReadsNothing(const Attacker& attacker) {
  const std::string request = SmallRequest(512).SerializeAsString();
  HoldConnections(
      attacker, attacker.target.server, attacker.target.scale / 8 + 1,
      [&](Http2Connection& connection, bool fresh) {
        if (!fresh) return connection.Send("");
        if (!connection.SendPreface(/*window=*/0)) return false;
        for (int i = 0; i < kCallsOfAConnection; ++i) {
          const uint32_t stream =
              connection.BeginCall(kGenerate, attacker.target.token);
          if (stream == 0 || !connection.SendMessage(stream, request)) {
            return false;
          }
        }
        return true;
      });
}

void IdleMetrics(const Attacker& attacker) {
  if (attacker.target.metrics.empty()) return;
  HoldConnections(
      attacker, attacker.target.metrics, 16 * attacker.target.scale,
      [](Http2Connection& connection, bool) { return connection.Drain(); });
}

void TrickledMetrics(const Attacker& attacker) {
  if (attacker.target.metrics.empty()) return;
  HoldConnections(attacker, attacker.target.metrics, attacker.target.scale,
                  [](Http2Connection& connection, bool fresh) {
                    return connection.Send(fresh ? "G" : "E") &&
                           connection.Drain();
                  });
}

// Bounds the rate of bytes of an attack. Thread-safe.
class Pace {
 public:
  explicit Pace(const Attacker& attacker)
      : stop_(attacker.stop),
        bytes_per_s_(1e6 * attacker.target.megabytes_per_second) {}

  // Returns when `bytes` more may be sent.
  void Wait(size_t bytes) {
    if (bytes_per_s_ == 0) return;
    absl::Time turn;
    {
      absl::MutexLock lock(&mu_);
      turn = next_ = std::max(next_, MonotonicNow());
      next_ += absl::Seconds(static_cast<double>(bytes) / bytes_per_s_);
    }
    Rest(stop_, turn - MonotonicNow());
  }

 private:
  const std::atomic<bool>& stop_;
  const double bytes_per_s_;
  absl::Mutex mu_;
  absl::Time next_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

// `callers` threads that make one call after another until told to stop.
void Call(const Attacker& attacker, int callers,
          const std::function<absl::Status(const testing::WireClient&)>& call) {
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      auto channel = rpc::CreateChannel(attacker.target.server, {});
      if (!channel.ok()) return;
      const testing::WireClient client(*channel, attacker.target.token);
      while (!attacker.stop) {
        ++attacker.tally.tried;
        if (!call(client).ok()) ++attacker.tally.refused;
        absl::SleepFor(kPause);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

absl::Status Generate(const testing::WireClient& client,
                      const v1::GenerateRequest& request,
                      const std::atomic<bool>& stop,
                      absl::Duration time = absl::Seconds(30)) {
  return client
      .Generate(request, MonotonicNow() + time,
                [&](const v1::GenerateDelta&) { return !stop; })
      .status();
}

// `callers` threads that send the same request again and again.
void Repeat(const Attacker& attacker, int callers,
            const v1::GenerateRequest& request,
            absl::Duration time = absl::Seconds(30)) {
  Pace pace(attacker);
  Call(attacker, callers, [&](const testing::WireClient& client) {
    pace.Wait(request.ByteSizeLong());
    return Generate(client, request, attacker.stop, time);
  });
}

v1::GenerateRequest TextRequest(int bytes) {
  v1::GenerateRequest request;
  request.set_text(std::string(static_cast<size_t>(bytes), 'a'));
  return request;
}

v1::DetokenizeRequest IdsRequest(int count) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Resize(count, 5);
  return request;
}

// Calls a method of the stub with one answer.
template <typename Request, typename Response>
absl::Status CallUnary(const Attacker& attacker,
                       const testing::WireClient& client,
                       grpc::Status (v1::Generation::Stub::*method)(
                           grpc::ClientContext*, const Request&, Response*),
                       const Request& request, Pace& pace) {
  pace.Wait(request.ByteSizeLong());
  grpc::ClientContext context;
  rpc::PrepareCall(context, MonotonicNow() + absl::Seconds(30),
                   attacker.target.token);
  Response response;
  return rpc::FromGrpcStatus(
      (client.stub().*method)(&context, request, &response));
}

void HugePrompts(const Attacker& attacker) {
  Repeat(attacker, attacker.target.scale / 16 + 1,
         TextRequest(kMessageTextBytes));
}

void HugeDetokenize(const Attacker& attacker) {
  const v1::DetokenizeRequest request = IdsRequest(kMessageIds);
  Pace pace(attacker);
  Call(attacker, attacker.target.scale / 16 + 1,
       [&](const testing::WireClient& client) {
         return CallUnary(attacker, client, &v1::Generation::Stub::Detokenize,
                          request, pace);
       });
}

// Every kind of largest request from many connections at once.
void MemoryFlood(const Attacker& attacker) {
  const v1::GenerateRequest message_text = TextRequest(kMessageTextBytes);
  const v1::GenerateRequest prompt_text = TextRequest(kPromptTextBytes);
  const v1::DetokenizeRequest message_ids = IdsRequest(kMessageIds);
  const v1::DetokenizeRequest prompt_ids = IdsRequest(kPromptIds);
  v1::TokenizeRequest tokenize;
  tokenize.set_text(prompt_text.text());
  std::atomic<int> next{0};
  Pace pace(attacker);
  const auto generate = [&](const testing::WireClient& client,
                            const v1::GenerateRequest& request) {
    pace.Wait(request.ByteSizeLong());
    return Generate(client, request, attacker.stop);
  };
  Call(attacker, attacker.target.scale, [&](const testing::WireClient& client) {
    switch (next++ % 5) {
      case 0:
        return generate(client, message_text);
      case 1:
        return generate(client, prompt_text);
      case 2:
        return CallUnary(attacker, client, &v1::Generation::Stub::Detokenize,
                         message_ids, pace);
      case 3:
        return CallUnary(attacker, client, &v1::Generation::Stub::Detokenize,
                         prompt_ids, pace);
      default:
        return CallUnary(attacker, client, &v1::Generation::Stub::Tokenize,
                         tokenize, pace);
    }
  });
}

// Small messages that inflate a thousandfold. One at a time: compressing them
// takes the attacker's processor.
void CompressedBomb(const Attacker& attacker) {
  v1::GenerateRequest request;
  request.set_text(std::string(kBombBytes, '\0'));
  // Without the limits of our own channels.
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto stub = v1::Generation::NewStub(grpc::CreateCustomChannel(
      attacker.target.server, grpc::InsecureChannelCredentials(), arguments));
  Pace pace(attacker);
  while (!attacker.stop) {
    pace.Wait(kBombBytes);
    ++attacker.tally.tried;
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    rpc::PrepareCall(context, MonotonicNow() + absl::Seconds(30),
                     attacker.target.token);
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    if (!reader->Finish().ok()) ++attacker.tally.refused;
    absl::SleepFor(kPause);
  }
}

// More requests than one caller should have, each of maximum length.
void RequestFlood(const Attacker& attacker) {
  Repeat(attacker, attacker.target.scale, SmallRequest(1024));
}

// Requests whose caller disconnects before they are served.
void DeadRequests(const Attacker& attacker) {
  Repeat(attacker, attacker.target.scale / 4 + 1, SmallRequest(256),
         absl::Milliseconds(20));
}

// A different unknown choice in every request.
void UnknownChoices(const Attacker& attacker) {
  std::atomic<int> next{1000};
  Call(attacker, 2, [&](const auto& client) {
    v1::GenerateRequest request = SmallRequest(1);
    request.mutable_speculation()->mutable_prompt_lookup()->set_match(
        static_cast<v1::PromptLookupMode::Match>(next++));
    return Generate(client, request, attacker.stop);
  });
}

// Line breaks and terminal sequences wherever the protocol takes text.
void ForgedText(const Attacker& attacker) {
  const std::string forged = "x\nE 2026-01-01T00:00:00.000Z forged\x1b[2J";
  v1::GenerateRequest request = SmallRequest(1);
  request.set_cache_scope(forged);
  request.mutable_speculation()->mutable_crest()->set_datastore(forged);
  Repeat(attacker, 1, request);
}

void Ordinary(const Attacker& attacker) {
  Repeat(attacker, attacker.target.scale, SmallRequest(64));
}

constexpr Attack kAttacks[] = {
    {"idle_connections", "opens connections and sends nothing",
     IdleConnections},
    {"half_spoken", "stops in the middle of the HTTP/2 preface",
     HalfSpokenConnections},
    {"header_only", "starts calls and never sends the request",
     HeaderOnlyCalls},
    {"reads_nothing", "never reads the answers", ReadsNothing},
    {"metrics_idle", "opens connections to /metrics and sends nothing",
     IdleMetrics, /*hostile=*/true, /*on_metrics=*/true},
    {"metrics_trickle", "asks for /metrics one byte at a time", TrickledMetrics,
     /*hostile=*/true, /*on_metrics=*/true},
    {"huge_prompts", "sends the largest prompts", HugePrompts},
    {"huge_detokenize", "sends the longest lists of ids", HugeDetokenize},
    {"memory_flood", "sends every kind of largest request at once",
     MemoryFlood},
    {"compressed_bomb", "sends small messages that inflate to large ones",
     CompressedBomb},
    {"request_flood", "sends many long requests at once", RequestFlood},
    {"dead_requests", "disconnects before its requests are served",
     DeadRequests},
    {"unknown_choices", "sends a new unknown enum value every time",
     UnknownChoices},
    {"forged_text", "sends line breaks where text is logged", ForgedText},
    {kOrdinaryRequests, "is no attack", Ordinary, /*hostile=*/false},
};

}  // namespace

absl::Span<const Attack> Attacks() { return kAttacks; }

}  // namespace foretoken::attack
