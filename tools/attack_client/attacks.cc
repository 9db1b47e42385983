#include "tools/attack_client/attacks.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "tools/attack_client/http2_connection.h"

namespace foretoken::attack {
namespace {

constexpr char kGenerate[] = "/foretoken.v1.Generation/Generate";
// Pause of an attacker between two steps: attacks are bounded in rate, so that
// what suffers is the server and not the machine.
constexpr absl::Duration kPause = absl::Milliseconds(5);
constexpr absl::Duration kConnectPause = absl::Milliseconds(1);
constexpr int kCallsOfAConnection = 64;
// A prompt that uses most of the default limit of a message (16 MiB), and ids
// for Detokenize likewise.
constexpr int kHugePromptBytes = 12 << 20;
constexpr int kHugeIds = 4 << 20;

void Rest(const std::atomic<bool>& stop, absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  while (!stop && absl::Now() < end) absl::SleepFor(kPause);
}

// Keeps `target.scale` connections, made again when the server closes them;
// `speak` is called with each new one and once in a while afterwards, and is
// false for one that is of no more use.
void HoldConnections(const std::string& address, int count,
                     const std::atomic<bool>& stop, Tally& tally,
                     const std::function<bool(Http2Connection&, bool)>& speak) {
  std::vector<Http2Connection> open;
  while (!stop) {
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
      Rest(stop, absl::Milliseconds(100));
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

void IdleConnections(const Target& target, const std::atomic<bool>& stop,
                     Tally& tally) {
  HoldConnections(
      target.server, 32 * target.scale, stop, tally,
      [](Http2Connection& connection, bool) { return connection.Drain(); });
}

// HTTP/2 that never gets to a call.
void HalfSpokenConnections(const Target& target, const std::atomic<bool>& stop,
                           Tally& tally) {
  HoldConnections(target.server, target.scale, stop, tally,
                  [](Http2Connection& connection, bool fresh) {
                    return fresh ? connection.Send("PRI * HTTP/2.0\r\n")
                                 : connection.Drain();
                  });
}

// Calls that begin and never send their request.
void HeaderOnlyCalls(const Target& target, const std::atomic<bool>& stop,
                     Tally& tally) {
  HoldConnections(target.server, target.scale / 8 + 1, stop, tally,
                  [&](Http2Connection& connection, bool fresh) {
                    if (!fresh) return connection.Drain();
                    if (!connection.SendPreface()) return false;
                    for (int i = 0; i < kCallsOfAConnection; ++i) {
                      if (connection.BeginCall(kGenerate, target.token) == 0)
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

// Streams whose answers are never read: the socket's window closes, and that of
// every stream.
void ReadsNothing(const Target& target, const std::atomic<bool>& stop,
                  Tally& tally) {
  const std::string request = SmallRequest(512).SerializeAsString();
  HoldConnections(
      target.server, target.scale / 8 + 1, stop, tally,
      [&](Http2Connection& connection, bool fresh) {
        if (!fresh) return connection.Send("");
        if (!connection.SendPreface(/*window=*/0)) return false;
        for (int i = 0; i < kCallsOfAConnection; ++i) {
          const uint32_t stream = connection.BeginCall(kGenerate, target.token);
          if (stream == 0 || !connection.SendMessage(stream, request)) {
            return false;
          }
        }
        return true;
      });
}

void TrickledMetrics(const Target& target, const std::atomic<bool>& stop,
                     Tally& tally) {
  if (target.metrics.empty()) return;
  HoldConnections(target.metrics, target.scale, stop, tally,
                  [](Http2Connection& connection, bool fresh) {
                    return connection.Send(fresh ? "G" : "E") &&
                           connection.Drain();
                  });
}

// `callers` threads that make one call after another until told to stop.
void Call(
    const Target& target, const std::atomic<bool>& stop, Tally& tally,
    int callers,
    const std::function<absl::Status(const rpc::GenerationClient&)>& call) {
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      auto channel = rpc::CreateChannel(target.server, {});
      if (!channel.ok()) return;
      const rpc::GenerationClient client(*channel, target.token);
      while (!stop) {
        ++tally.tried;
        if (!call(client).ok()) ++tally.refused;
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
      .Generate(request, absl::Now() + time,
                [&](const v1::GenerateDelta&) { return !stop; })
      .status();
}

void HugePrompts(const Target& target, const std::atomic<bool>& stop,
                 Tally& tally) {
  v1::GenerateRequest request;
  request.set_text(std::string(kHugePromptBytes, 'a'));
  Call(target, stop, tally, target.scale / 16 + 1,
       [&](const rpc::GenerationClient& client) {
         return Generate(client, request, stop);
       });
}

void HugeDetokenize(const Target& target, const std::atomic<bool>& stop,
                    Tally& tally) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Resize(kHugeIds, 5);
  Call(target, stop, tally, target.scale / 16 + 1,
       [&](const rpc::GenerationClient& client) {
         grpc::ClientContext context;
         rpc::PrepareCall(context, absl::Now() + absl::Seconds(30),
                          target.token);
         v1::DetokenizeResponse response;
         return client.stub().Detokenize(&context, request, &response).ok()
                    ? absl::OkStatus()
                    : absl::UnavailableError("refused");
       });
}

// More requests than one caller should have, each as long as it may be.
void RequestFlood(const Target& target, const std::atomic<bool>& stop,
                  Tally& tally) {
  const v1::GenerateRequest request = SmallRequest(1024);
  Call(target, stop, tally, target.scale,
       [&](const auto& client) { return Generate(client, request, stop); });
}

// Requests whose caller is gone before they are served.
void DeadRequests(const Target& target, const std::atomic<bool>& stop,
                  Tally& tally) {
  const v1::GenerateRequest request = SmallRequest(256);
  Call(target, stop, tally, target.scale / 4 + 1, [&](const auto& client) {
    return Generate(client, request, stop, absl::Milliseconds(20));
  });
}

// A different unknown choice in every request.
void UnknownChoices(const Target& target, const std::atomic<bool>& stop,
                    Tally& tally) {
  std::atomic<int> next{1000};
  Call(target, stop, tally, 2, [&](const auto& client) {
    v1::GenerateRequest request = SmallRequest(1);
    request.mutable_speculation()->mutable_prompt_lookup()->set_match(
        static_cast<v1::PromptLookupMode::Match>(next++));
    return Generate(client, request, stop);
  });
}

// Line breaks and terminal sequences wherever the protocol takes text.
void ForgedText(const Target& target, const std::atomic<bool>& stop,
                Tally& tally) {
  const std::string forged = "x\nE 2026-01-01T00:00:00.000Z forged\x1b[2J";
  Call(target, stop, tally, 1, [&](const auto& client) {
    v1::GenerateRequest request = SmallRequest(1);
    request.set_cache_scope(forged);
    request.mutable_speculation()->mutable_crest()->set_datastore(forged);
    return Generate(client, request, stop);
  });
}

constexpr Attack kAttacks[] = {
    {"idle_connections", "opens connections and says nothing", IdleConnections},
    {"half_spoken", "stops in the middle of the HTTP/2 preface",
     HalfSpokenConnections},
    {"header_only", "begins calls and never sends the request",
     HeaderOnlyCalls},
    {"reads_nothing", "never reads what its calls answer", ReadsNothing},
    {"metrics_trickle", "asks for /metrics one byte at a time",
     TrickledMetrics},
    {"huge_prompts", "sends the largest prompts", HugePrompts},
    {"huge_detokenize", "sends the longest lists of ids", HugeDetokenize},
    {"request_flood", "sends many long requests at once", RequestFlood},
    {"dead_requests", "is gone before its requests are served", DeadRequests},
    {"unknown_choices", "sends a new unknown enum value every time",
     UnknownChoices},
    {"forged_text", "sends line breaks where text is logged", ForgedText},
};

}  // namespace

absl::Span<const Attack> Attacks() { return kAttacks; }

}  // namespace foretoken::attack
