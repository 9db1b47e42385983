// Shared parts of both soaks: prompts cut from plain text, numbered requests,
// and running one request to its end.
#ifndef FORETOKEN_TESTS_SOAK_CLIENT_SOAK_H_
#define FORETOKEN_TESTS_SOAK_CLIENT_SOAK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/json_fwd.h"
#include "common/base/types.h"
#include "common/rpc/channel.h"
#include "tests/support/wire_client.h"

namespace foretoken::soak {

struct SoakOptions {
  std::string server = "127.0.0.1:50050";
  rpc::ChannelOptions channel;
  std::vector<std::string> texts;  // files that prompts are cut from
  std::vector<std::string> modes;  // beside `off`, which is the reference
  int32_t max_tokens = 128;        // of one output
  uint64_t seed = 1;
  int32_t constrained_share = 4;  // one request in so many; 0: none
};

// A prompt and how to continue it; equal numbers give equal requests.
struct Work {
  std::string prompt;
  float temperature = 0;
  uint64_t seed = 0;
  std::string cache_scope;
  v1::Constraint constraint;  // on the output, if it has one
};

struct Outcome {
  absl::Status status;
  std::vector<TokenId> tokens;
  v1::GenerateResult result;  // where status is OK
};

// Runs one request. `keep_on` is called after every delta with the number of
// tokens so far; false cancels the request.
Outcome Run(const testing::WireClient& client, const Work& work,
            const std::string& mode, int max_tokens, absl::Time deadline,
            const std::function<bool(size_t)>& keep_on);

// Runs one request to its end, with a deadline of five minutes.
Outcome RunWhole(const testing::WireClient& client, const Work& work,
                 const std::string& mode, int max_tokens);

// A server, work for it, and the output of mode `off` for each piece of work,
// the reference for the other modes.
struct Setup {
  std::unique_ptr<testing::WireClient> client;
  std::vector<Work> works;
  std::vector<std::vector<TokenId>> references;  // [works.size()]
};
// Cuts `count` prompts from the files, at line ends; every other one runs at
// temperature 0.8, and some under a constraint of one kind after the other.
// InvalidArgument if the files are too short.
absl::StatusOr<Setup> Prepare(const SoakOptions& options, int count);

// Calls work(0), work(1), ... while go_on(number) holds, `concurrency` at a
// time, and returns after the last.
void WhileTrue(const std::function<bool(int)>& go_on, int concurrency,
               const std::function<void(int)>& work);

// Compares every mode with `off`, token for token, over at least `tokens`
// tokens in total, not counting those of `off`; OutOfRange if the texts are too
// short for that, InvalidArgument if no mode drafts. The report has every
// mode's tokens, accept length and differences; a mode without one accepted
// draft counts as bad, too.
absl::StatusOr<Json> RunLossless(const SoakOptions& options, int64_t tokens,
                                 const std::vector<int>& concurrencies);
// The same report as a table.
std::string LosslessTable(const Json& report);

struct ChaosOptions {
  int requests = 0;   // at least
  std::string until;  // and until this file exists, unless ""
  int concurrency = 16;
  // Between the end of a request and the next one in its place.
  absl::Duration pause = absl::ZeroDuration();
};

// Sends requests of random modes, lengths and scopes, some cancelled, some with
// short deadlines, to a system whose parts are being killed meanwhile. Checks
// that every output is a prefix of the reference from `off`, and that every
// request ends; refused requests are retried. Reports on stderr when the
// references are complete (kill nothing before that) and its progress.
absl::StatusOr<Json> RunChaos(const SoakOptions& options,
                              const ChaosOptions& chaos);
std::string ChaosTable(const Json& report);

}  // namespace foretoken::soak

#endif  // FORETOKEN_TESTS_SOAK_CLIENT_SOAK_H_
