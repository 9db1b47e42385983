// Load: sends requests to a generator, closed loop (a number of clients, each
// of which sends its next request when the last has ended) or open loop (each
// request at its time, however many are running), and records what the clients
// saw.
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_LOAD_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_LOAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/types.h"
#include "common/generation/generation.h"
#include "common/generation/generator.h"

namespace foretoken::mode_bench {

struct LoadRequest {
  GenerationRequest request;
  size_t prompt = 0;  // index of the prompt, for the caller
  absl::Duration at;  // open loop: since the start
};

struct LoadOutcome {
  struct Chunk {  // of tokens that arrived together
    absl::Time time;
    int64_t tokens = 0;
  };

  size_t prompt = 0;
  bool refused = false;  // open loop only; there is no output
  std::vector<TokenId> tokens;
  std::vector<Chunk> chunks;
  GenerationSummary summary;
  std::string numerics_fingerprint;
  absl::Time start;  // open loop: when it was due, however late it was sent
  absl::Time end;

  // Milliseconds from the start. The output has at least one token.
  double first_token_ms() const;
  double latency_ms() const;
  // Tokens after the first chunk, and the milliseconds from that to the last.
  int64_t decoded_tokens() const;
  double decode_ms() const;
  // Appends a value for each token after the first chunk: the time since the
  // chunk before, divided evenly over the tokens of the chunk. The values add
  // up to the time from the first token to the last.
  void AppendTokenGaps(std::vector<double>& milliseconds) const;
};

struct LoadResult {
  // In a closed loop, over its steady part: until the first client found no
  // more requests, so that all clients were at work. In an open loop, all
  // tokens from the start to the end of the last request.
  double tokens_per_s = 0;
  std::vector<LoadOutcome> outcomes;  // in the order of the requests
};

struct LoadOptions {
  int max_in_flight = 512;  // of an open loop
  Clock clock = MonotonicClock();
  // Waits; called in steps of at most 100 ms.
  std::function<void(absl::Duration)> pause;  // null: sleeps
  std::function<void()> on_done;              // after each request, if not null
};

// `clients` is at least 1, and there are at least as many requests. The first
// error ends everything and is returned, with the prompt's number, from 1.
absl::StatusOr<LoadResult> RunClosedLoop(Generator& generator,
                                         const std::vector<LoadRequest>& work,
                                         int clients,
                                         const LoadOptions& options);

// Requests are sorted by `at`. ResourceExhausted and Unavailable are outcomes,
// the first other error is returned; ResourceExhausted if more than
// max_in_flight would run at once.
absl::StatusOr<LoadResult> RunOpenLoop(Generator& generator,
                                       const std::vector<LoadRequest>& work,
                                       const LoadOptions& options);

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_LOAD_H_
