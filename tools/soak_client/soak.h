// What both soaks share: prompts out of plain text, requests by number, and
// one request driven to its end.
#ifndef FORETOKEN_TOOLS_SOAK_CLIENT_SOAK_H_
#define FORETOKEN_TOOLS_SOAK_CLIENT_SOAK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/json.h"
#include "common/base/types.h"
#include "common/rpc/generation_client.h"

namespace foretoken::soak {

struct SoakOptions {
  std::string server = "127.0.0.1:50050";
  std::vector<std::string> texts;  // files that prompts are cut from
  std::vector<std::string> modes;  // beside `off`, which is the reference
  int32_t max_tokens = 128;        // of one output
  uint64_t seed = 1;
};

// A prompt and how it is to be continued; equal numbers are equal requests.
struct Work {
  std::string prompt;
  float temperature = 0;
  uint64_t seed = 0;
  std::string cache_scope;
};

struct Outcome {
  absl::Status status;
  std::vector<TokenId> tokens;
  v1::GenerateResult result;  // where status is OK
};

// One request. `keep_on` is asked after every delta with the number of tokens
// so far; false cancels.
Outcome Run(const rpc::GenerationClient& client, const Work& work,
            const std::string& mode, int max_tokens, absl::Time deadline,
            const std::function<bool(size_t)>& keep_on);

// One request to its end, which has five minutes for it.
Outcome RunWhole(const rpc::GenerationClient& client, const Work& work,
                 const std::string& mode, int max_tokens);

// A server, pieces of work for it, and the output of mode `off` for each, with
// which the other modes are compared.
struct Setup {
  std::unique_ptr<rpc::GenerationClient> client;
  std::vector<Work> works;
  std::vector<std::vector<TokenId>> references;  // [works.size()]
};
// `count` pieces of the files, at line ends, every other one at temperature
// 0.8. InvalidArgument where the files hold too little.
absl::StatusOr<Setup> Prepare(const SoakOptions& options, int count);

// Calls work(0), work(1), ... while go_on(number) holds, `concurrency` at a
// time, and returns after the last.
void WhileTrue(const std::function<bool(int)>& go_on, int concurrency,
               const std::function<void(int)>& work);

// Every mode equals `off`, token for token, over at least `tokens` compared
// tokens in all, those of `off` itself aside; OutOfRange where the texts are
// too short for that, InvalidArgument where no mode drafts. The report names
// every mode's tokens, accept length and differences; a mode without one
// accepted draft is bad too.
absl::StatusOr<Json> RunLossless(const SoakOptions& options, int64_t tokens,
                                 const std::vector<int>& concurrencies);
// That report for people.
std::string LosslessTable(const Json& report);

struct ChaosOptions {
  int requests = 0;   // at least
  std::string until;  // and until there is this file, unless it is ""
  int concurrency = 16;
};

// Requests of random modes, lengths and scopes, of which some are cancelled and
// some have little time, against a system whose parts are being killed by
// someone else. All that comes is the beginning of what `off` gave before that,
// whoever is refused tries again, and everyone comes to an end. Says on stderr
// when `off` was asked, which is to be done in peace, and how far it is.
absl::StatusOr<Json> RunChaos(const SoakOptions& options,
                              const ChaosOptions& chaos);
std::string ChaosTable(const Json& report);

}  // namespace foretoken::soak

#endif  // FORETOKEN_TOOLS_SOAK_CLIENT_SOAK_H_
