// ModeBench: compares drafting modes by throughput and latency, in interleaved
// pairs.
//
// A cell is a mode at a concurrency. In every pair each mode answers the same
// requests, a slice, so that the ratio of two modes compares equal work within
// seconds, whatever the machine did before. Every slice has a cache scope of
// its own: requests share text within a slice as they would in service, and no
// mode profits from outputs that an earlier slice has already seen.
//
// A slice that is not measured precedes the pairs in every mode. Every output
// is compared with the other modes' (output_check.h).
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/generation/generation.h"
#include "common/speculation/modes.h"
#include "tools/cli/mode_bench/arrival_trace.h"
#include "tools/cli/mode_bench/load.h"
#include "tools/cli/mode_bench/output_check.h"
#include "tools/cli/mode_bench/pair_schedule.h"
#include "tools/cli/prompt_file.h"

namespace foretoken::mode_bench {

// Splits "off,prompt_lookup:max_n=3,match=latest,auto" into modes: a part
// "key=value" belongs to the mode before it.
std::vector<std::string> SplitModes(absl::string_view text);

struct ModeBenchOptions {
  std::vector<std::string> modes;  // the first `off` is the baseline
  // Closed loop: clients that send one request after the other.
  std::vector<int> concurrency = {1};
  PairOptions pairs;
  // Requests of a slice. 0: twice the concurrency and at least 8, or the whole
  // trace.
  int requests = 0;
  int64_t max_tokens = 128;
  double temperature = 0;
  bool ignore_eos = false;
  // Open loop: arrivals take the place of `concurrency`, `speed` times as fast.
  // Outputs are as long as the trace's, at most max_tokens.
  std::vector<Arrival> arrivals;
  double speed = 1;
  std::string scope;  // prefix of the slices' cache scopes

  bool open_loop() const { return !arrivals.empty(); }
  int RequestsOf(int clients) const;  // of a slice
};

struct CellResult {
  std::string mode;
  bool baseline = false;
  int concurrency = 0;               // 0: an open loop
  std::vector<double> tokens_per_s;  // by pair
  // Tokens after each request's first, over the time from that to its last;
  // NaN where no request has a second token. By pair.
  std::vector<double> decode_tokens_per_s;
  int64_t requests = 0;  // refused ones included
  int64_t refused = 0;
  int64_t tokens = 0;
  int64_t rounds = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  std::map<DrafterId, DrafterCounts> by_drafter;
  std::vector<double> first_token_ms;  // by request
  std::vector<double> token_gap_ms;    // by token
  std::vector<double> latency_ms;      // by request
  // Sums over all requests: of drafting and verification as the server saw
  // them, of decoding as the client did.
  double draft_ms = 0;
  double verify_ms = 0;
  double decode_ms = 0;

  void Add(const LoadResult& slice);
  // Drafts that came late or were cut off.
  int64_t shortened_drafts() const;
  std::vector<double> LogRates() const;  // by pair
  std::vector<double> LogDecodeRates() const;
  // One per pair; `other` has the same pairs.
  std::vector<double> LogRatios(const CellResult& other) const;
  std::vector<double> LogDecodeRatios(const CellResult& other) const;
};

struct ModeBenchResult {
  std::string numerics_fingerprint;
  int64_t tokens_compared = 0;
  // Ordered by concurrency, then by mode, as in the options.
  std::vector<CellResult> cells;
};

class ModeBench {
 public:
  // InvalidArgument for options without the mode `off`, with modes that do not
  // exist, or with fewer requests in a slice than clients.
  static absl::Status Check(const ModeBenchOptions& options);

  // `options` have passed Check; `prompts` is not empty. Borrows all.
  ModeBench(const ModeBenchOptions& options,
            const std::vector<cli::FilePrompt>& prompts, Generator& generator,
            const LoadOptions& load);

  // Requests of a run with the most pairs that the options allow, warm-up
  // included.
  int64_t MostRequests() const;

  // The first failed request ends the run (in an open loop refusals are
  // counted); its error names mode, concurrency and prompt. DataLoss if modes
  // give different tokens.
  absl::StatusOr<ModeBenchResult> Run();

 private:
  // The requests of a pair, without their cache scope.
  std::vector<LoadRequest> MakeWork(int pair, int clients,
                                    const Mode& mode) const;
  absl::StatusOr<LoadResult> RunSlice(size_t mode, int clients, bool open_loop,
                                      std::vector<LoadRequest> work);
  int WarmUpClients() const;
  int WarmUpRequests() const;
  absl::Status WarmUp();
  absl::Status RunPair(int pair, size_t group);

  CellResult& Cell(size_t group, size_t mode) {
    return result_.cells[group * modes_.size() + mode];
  }
  // Ratios of the modes to the baseline.
  std::vector<Interval> Ratios(size_t group);

  const ModeBenchOptions& options_;
  const std::vector<cli::FilePrompt>& prompts_;
  Generator& generator_;
  const LoadOptions& load_;
  const PairSchedule schedule_;
  std::vector<Mode> modes_;
  std::vector<int> clients_;  // by group; an open loop is one group of 0
  size_t baseline_ = 0;
  int64_t slices_ = 0;
  OutputCheck outputs_;
  ModeBenchResult result_;
};

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_MODE_BENCH_H_
