#include "tools/attack_client/attacks.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "tools/attack_client/http2_connection.h"

namespace foretoken::attack {
namespace {

constexpr char kGenerate[] = "/foretoken.v1.Generation/Generate";
// Pause of an attacker between two steps: bounds the rate of attacks, so that
// they load the server and not the whole machine.
constexpr absl::Duration kPause = absl::Milliseconds(5);
constexpr absl::Duration kConnectPause = absl::Milliseconds(1);
constexpr int kCallsOfAConnection = 64;
// The largest texts and lists of ids: of a message (16 MiB by default), and of
// a prompt (4 MiB).
constexpr int kMessageTextBytes = (16 << 20) - 64;
constexpr int kMessageIds = 8 << 20;
constexpr int kPromptTextBytes = 4 << 20;
constexpr int kPromptIds = 1 << 20;

void Rest(const std::atomic<bool>& stop, absl::Duration time) {
  const absl::Time end = MonotonicNow() + time;
  while (!stop && MonotonicNow() < end) absl::SleepFor(kPause);
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
      absl::SleepFor(kConnectPause);
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

// `callers` threads that make one call after another until told to stop.
void Call(
    const Attacker& attacker, int callers,
    const std::function<absl::Status(const rpc::GenerationClient&)>& call) {
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      auto channel = rpc::CreateChannel(attacker.target.server, {});
      if (!channel.ok()) return;
      const rpc::GenerationClient client(*channel, attacker.target.token);
      while (!attacker.stop) {
        ++attacker.tally.tried;
        if (!call(client).ok()) ++attacker.tally.refused;
        absl::SleepFor(kPause);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

absl::Status Generate(const rpc::GenerationClient& client,
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
  Call(attacker, callers, [&](const rpc::GenerationClient& client) {
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
                       const rpc::GenerationClient& client,
                       grpc::Status (v1::Generation::Stub::*method)(
                           grpc::ClientContext*, const Request&, Response*),
                       const Request& request) {
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
  Call(attacker, attacker.target.scale / 16 + 1,
       [&](const rpc::GenerationClient& client) {
         return CallUnary(attacker, client, &v1::Generation::Stub::Detokenize,
                          request);
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
  Call(attacker, attacker.target.scale,
       [&](const rpc::GenerationClient& client) {
         switch (next++ % 5) {
           case 0:
             return Generate(client, message_text, attacker.stop);
           case 1:
             return Generate(client, prompt_text, attacker.stop);
           case 2:
             return CallUnary(attacker, client,
                              &v1::Generation::Stub::Detokenize, message_ids);
           case 3:
             return CallUnary(attacker, client,
                              &v1::Generation::Stub::Detokenize, prompt_ids);
           default:
             return CallUnary(attacker, client, &v1::Generation::Stub::Tokenize,
                              tokenize);
         }
       });
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

constexpr Attack kOrdinary = {"ordinary_requests", "sends short requests",
                              Ordinary};

constexpr Attack kAttacks[] = {
    {"idle_connections", "opens connections and sends nothing",
     IdleConnections},
    {"half_spoken", "stops in the middle of the HTTP/2 preface",
     HalfSpokenConnections},
    {"header_only", "starts calls and never sends the request",
     HeaderOnlyCalls},
    {"reads_nothing", "never reads the answers", ReadsNothing},
    {"metrics_idle", "opens connections to /metrics and sends nothing",
     IdleMetrics},
    {"metrics_trickle", "asks for /metrics one byte at a time",
     TrickledMetrics},
    {"huge_prompts", "sends the largest prompts", HugePrompts},
    {"huge_detokenize", "sends the longest lists of ids", HugeDetokenize},
    {"memory_flood", "sends every kind of largest request at once",
     MemoryFlood},
    {"request_flood", "sends many long requests at once", RequestFlood},
    {"dead_requests", "disconnects before its requests are served",
     DeadRequests},
    {"unknown_choices", "sends a new unknown enum value every time",
     UnknownChoices},
    {"forged_text", "sends line breaks where text is logged", ForgedText},
};

}  // namespace

absl::Span<const Attack> Attacks() { return kAttacks; }

const Attack& OrdinaryRequests() { return kOrdinary; }

}  // namespace foretoken::attack
