// All five services as processes of their own, with the demo pair, a datastore
// and a prior made of a few files, and a private PostgreSQL and Redis.
#ifndef FORETOKEN_TESTS_E2E_FIVE_SERVICES_H_
#define FORETOKEN_TESTS_E2E_FIVE_SERVICES_H_

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/types.h"
#include "tests/e2e/process.h"
#include "tests/support/private_postgres.h"
#include "tests/support/private_redis.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wire_client.h"

namespace foretoken::testing {

enum class Part {
  kVerifier,
  kDraftWorker,
  kTrieDrafter,
  kCrest,
  kOrchestrator
};

// The second datastore of the crest service, after ServeRestToo.
inline constexpr char kRestDatastore[] = "base";

// What a client saw of one request.
struct Written {
  absl::Status status;
  std::vector<TokenId> tokens;
  v1::GenerateResult result;

  // Rounds that a drafter answered.
  int64_t answered() const;
};

class FiveServices {
 public:
  // Whether PostgreSQL and Redis are installed.
  static bool Possible();

  // Everything serves.
  FiveServices();

  std::string address(Part part) const;
  // Waits until it serves.
  void Start(Part part);
  // Replaces the crest service by the laboratory's, which also serves a REST
  // snapshot of the same text.
  void ServeRestToo();
  Process& process(Part part) { return *processes_[Index(part)]; }
  PrivatePostgres& postgres() { return postgres_; }
  PrivateRedis& redis() { return redis_; }

  // A sample of the part's metrics page, such as `foretoken_streams`; -1 where
  // there is none.
  double Metric(Part part, const std::string& sample) const;

  // One request over a fixed prompt, sampled; `at_fifth` is called when the
  // fifth delta arrives.
  Written Write(const std::string& mode,
                const std::function<void()>& at_fifth = nullptr) const;

 private:
  static constexpr int kParts = 5;
  static size_t Index(Part part) { return static_cast<size_t>(part); }
  std::string Binary(const std::string& name) const;
  void Start(Part part, const std::string& program,
             const std::vector<std::string>& more);
  // Runs the command line to its end.
  void Run(std::vector<std::string> args) const;
  std::vector<std::string> Flags(Part part) const;

  TempDir dir_;
  PrivatePostgres postgres_;
  PrivateRedis redis_;
  std::array<int, kParts> ports_;
  std::array<int, kParts> metrics_ports_;
  std::array<std::unique_ptr<Process>, kParts> processes_;
  std::unique_ptr<WireClient> client_;
};

// True within a generous time.
bool Soon(const std::function<bool()>& condition);

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_E2E_FIVE_SERVICES_H_
