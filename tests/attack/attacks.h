// The attacks. Each abuses a server in one way that must not stop it serving
// others, in a thread of its own, with bounded count and rate.
#ifndef FORETOKEN_TESTS_ATTACK_ATTACKS_H_
#define FORETOKEN_TESTS_ATTACK_ATTACKS_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace foretoken::attack {

struct Target {
  std::string server;   // HOST:PORT
  std::string metrics;  // HOST:PORT, or empty
  std::string token;    // the attackers' own bearer token, or empty
  int32_t scale = 64;   // connections, calls or requests of an attack at once
  // Limit of an attack that sends large messages; 0: none.
  int32_t megabytes_per_second = 8;
};

// What an attack has done so far. Thread-safe.
struct Tally {
  std::atomic<int64_t> tried{0};
  std::atomic<int64_t> refused{0};  // by the server, or closed by it
};

// One running attack.
struct Attacker {
  const Target& target;
  const std::atomic<bool>& stop;
  Tally& tally;
};

struct Attack {
  const char* name;
  const char* does;
  // Runs until attacker.stop, and leaves nothing behind.
  void (*run)(const Attacker& attacker);
  bool hostile = true;
  bool on_metrics = false;  // tries nothing without target.metrics
};

// Not hostile: short requests, `scale` at once.
inline constexpr char kOrdinaryRequests[] = "ordinary_requests";

absl::Span<const Attack> Attacks();

}  // namespace foretoken::attack

#endif  // FORETOKEN_TESTS_ATTACK_ATTACKS_H_
