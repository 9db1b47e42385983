// What a scope's own prior adds to the accept length of its requests.
//
//   bench_scope_prior --tokenizer DIR --rows FILE [--served 2000]
//       [--probes 200] [--history-tokens 4096,32768,262144] [--prior FILE]
//       [--scope-prior-tokens 1048576] [--scope-prior-bytes 4194304]
//
// --rows: what a target wrote at temperature 0, with `prompt` and `output`, as
// of `foretoken prior grow --text-out`. A verifier accepts what equals its own
// output, so the rows tell what it would have answered to any draft. They do
// not hold its candidates after verified rows. The first rows are the probes,
// the next ones are served in one cache scope, by mode auto's drafter and the
// trie drafter's own memory.
//
// For every history window, with and without the prior, the probes are measured
// before and after the served requests and once more after a restart, which
// keeps what the warm store holds: the last --warm-start-records outputs and,
// with the prior, its text. The probes leave nothing behind: neither output nor
// learned trust. One JSON object a line; `over_without` is the accept length
// over that without the prior, with a 95 % interval from resampled probes.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/config/flags.h"
#include "common/drafting/fused_drafter.h"
#include "common/drafting/json_rows.h"
#include "common/drafting/replay.h"
#include "common/text/tokenizer.h"
#include "services/trie_drafter/core/scope_memory.h"
#include "tests/lab/accept_ratio.h"

namespace foretoken::trie_drafter {
namespace {

struct Settings {
  std::string tokenizer;
  std::string rows;
  std::string prior;
  std::vector<std::string> windows = {"4096", "32768", "262144"};
  int32_t served = 2000;
  int32_t probes = 200;
  int32_t nodes = 64;
  int32_t warm_start_records = 128;
  ScopePriorOptions scope_prior;
};

struct Request {
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
};

using Counts = std::vector<ReplayCounts>;  // by probe

class Bench {
 public:
  Bench(const Settings& settings, const Tokenizer& tokenizer,
        std::shared_ptr<const StaticPrior> prior, std::vector<Request> requests)
      : settings_(settings),
        prior_(std::move(prior)),
        probes_(requests.begin(), requests.begin() + settings.probes),
        served_(requests.begin() + settings.probes, requests.end()) {
    scope_prior_ = settings.scope_prior;
    scope_prior_.tokenizer = tokenizer.fingerprint();
    scope_prior_.vocab_size = tokenizer.vocab_size();
  }

  // One history window; `own`: with the scope's prior.
  struct Result {
    Counts before, after, restarted;
  };
  absl::StatusOr<Result> Run(int64_t window, bool own) const {
    ScopeOptions options;
    options.history_tokens = window;
    options.prior = scope_prior_;
    if (!own) options.prior.max_tokens = 0;
    Result result;
    ScopeMemory scope(options);
    result.before = Probe(scope);
    Print(window, own, "before", scope, result.before);
    for (const Request& request : served_) {
      Serve(scope, request, /*learns=*/true);
      if (!own || !scope.prior()->Add(request.output).due) continue;
      FORETOKEN_RETURN_IF_ERROR(scope.prior()->Compact().status());
    }
    result.after = Probe(scope);
    Print(window, own, "after", scope, result.after);
    ScopeMemory restarted(options);
    if (restarted.MergeStored(Stored(window, own))) {
      FORETOKEN_RETURN_IF_ERROR(restarted.prior()->Compact().status());
    }
    result.restarted = Probe(restarted);
    Print(window, own, "restarted", restarted, result.restarted);
    return result;
  }

 private:
  ReplayCounts Serve(const ScopeMemory& scope, const Request& request,
                     bool learns) const {
    FusedOptions options;
    options.prior = prior_;
    if (scope.prior() != nullptr) options.scope_prior = scope.prior()->Get();
    options.memory = scope.fused();
    options.keep_history = learns;
    const std::unique_ptr<Drafter> drafter = MakeFusedDrafter(options);
    const absl::Span<const TokenId> output = request.output;
    ReplayCounts counts;
    drafter->StartRequest(request.prompt);
    drafter->Commit(output.first(1));  // prefill's
    DraftTree tree;
    std::vector<int32_t> path;
    for (size_t at = 1; at < output.size();) {
      drafter->Draft(settings_.nodes, tree);
      FindAcceptedPath(tree, output.subspan(at), path);
      const size_t taken = std::min(path.size() + 1, output.size() - at);
      drafter->Commit(output.subspan(at, taken));
      at += taken;
      counts.tokens += static_cast<int64_t>(taken);
      ++counts.rounds;
    }
    drafter->EndRequest();
    return counts;
  }

  Counts Probe(const ScopeMemory& scope) const {
    Counts counts;
    for (const Request& probe : probes_) {
      counts.push_back(Serve(scope, probe, /*learns=*/false));
    }
    return counts;
  }

  StoredScope Stored(int64_t window, bool own) const {
    StoredScope stored;
    const size_t last = std::min(
        served_.size(), static_cast<size_t>(settings_.warm_start_records));
    for (auto one = served_.end() - static_cast<ptrdiff_t>(last);
         one != served_.end(); ++one) {
      stored.outputs.push_back(one->output);
    }
    int64_t left = own ? scope_prior_.max_tokens + window : 0;
    for (auto one = served_.rbegin(); one != served_.rend() && left > 0;
         ++one) {
      left -= static_cast<int64_t>(one->output.size());
      stored.texts.push_back(one->output);
    }
    std::reverse(stored.texts.begin(), stored.texts.end());
    return stored;
  }

  static void Print(int64_t window, bool own, const char* state,
                    const ScopeMemory& scope, const Counts& counts) {
    const Json line = {{"history_window", window},
                       {"scope_prior", own},
                       {"state", state},
                       {"accept_length", AcceptLength(counts)},
                       {"history_held", scope.history_tokens()},
                       {"history_bytes", scope.fused()->MemoryBytes()},
                       {"prior_counted", scope.prior_tokens()},
                       {"prior_bytes", scope.prior_bytes()}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  const Settings& settings_;
  ScopePriorOptions scope_prior_;
  const std::shared_ptr<const StaticPrior> prior_;
  const std::vector<Request> probes_;
  const std::vector<Request> served_;
};

void Compare(int64_t window, const char* state, const Counts& with,
             const Counts& without) {
  const AcceptRatio over = CompareAcceptLength(with, without);
  const Json line = {{"history_window", window},
                     {"state", state},
                     {"over_without", over.ratio},
                     {"low", over.low},
                     {"high", over.high}};
  std::printf("%s\n", line.dump().c_str());
}

absl::StatusOr<std::vector<Request>> ReadRequests(const Settings& settings,
                                                  const Tokenizer& tokenizer) {
  std::vector<Request> requests;
  FORETOKEN_RETURN_IF_ERROR(
      ForEachJsonRow(settings.rows, [&](const Json& row) -> absl::Status {
        FORETOKEN_ASSIGN_OR_RETURN(const std::string prompt,
                                   StringField(row, "prompt"));
        FORETOKEN_ASSIGN_OR_RETURN(const std::string output,
                                   StringField(row, "output"));
        Request request{tokenizer.EncodePrompt(prompt),
                        tokenizer.Encode(output)};
        if (!request.output.empty()) requests.push_back(std::move(request));
        return absl::OkStatus();
      }));
  const size_t want = static_cast<size_t>(settings.served) +
                      static_cast<size_t>(settings.probes);
  if (requests.size() < want) {
    return absl::InvalidArgumentError(
        absl::StrCat(settings.rows, ": ", requests.size(),
                     " rows, want --served and --probes: ", want));
  }
  requests.resize(want);
  return requests;
}

absl::Status Main(int argc, char** argv) {
  Settings settings;
  settings.scope_prior.max_tokens = int64_t{1} << 20;
  ScopePriorOptions& own = settings.scope_prior;
  Flags flags("bench_scope_prior",
              "Accept length with and without a scope's own prior.");
  flags.String("tokenizer", &settings.tokenizer, "The target's tokenizer");
  flags.String("rows", &settings.rows, "JSONL of what the target wrote");
  flags.String("prior", &settings.prior, "Static prior of all scopes");
  flags.List("history-tokens", &settings.windows, "Windows of the history");
  flags.Int("served", &settings.served, {1, 1 << 20}, "Requests served");
  flags.Int("probes", &settings.probes, {1, 1 << 20}, "Requests measured");
  flags.Int("max-tree-nodes", &settings.nodes, {1, 1024}, "Nodes of a draft");
  flags.Int("warm-start-records", &settings.warm_start_records, {1, 256},
            "Outputs that the history has after a restart");
  flags.Int64("scope-prior-tokens", &own.max_tokens, {1 << 10, 1 << 22},
              "Tokens counted at most");
  flags.Int64("scope-prior-every", &own.compact_every, {1 << 10, 1 << 22},
              "New tokens before the prior is built again");
  flags.Int64("scope-prior-bytes", &own.max_bytes, {1 << 16, 1 << 30},
              "Maximum size of the scope's prior");
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  FORETOKEN_ASSIGN_OR_RETURN(const auto tokenizer,
                             Tokenizer::LoadShared(settings.tokenizer));
  std::shared_ptr<const StaticPrior> prior;
  if (!settings.prior.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        prior, StaticPrior::Open(settings.prior, tokenizer->fingerprint()));
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<Request> requests,
                             ReadRequests(settings, *tokenizer));
  const Bench bench(settings, *tokenizer, prior, std::move(requests));
  for (const std::string& text : settings.windows) {
    int64_t window = 0;
    if (!absl::SimpleAtoi(text, &window) || window < 16 || window > 1 << 26) {
      return absl::InvalidArgumentError(
          absl::StrCat("--history-tokens: ", text, ", want 16..2^26"));
    }
    FORETOKEN_ASSIGN_OR_RETURN(const Bench::Result without,
                               bench.Run(window, false));
    FORETOKEN_ASSIGN_OR_RETURN(const Bench::Result with,
                               bench.Run(window, true));
    Compare(window, "after", with.after, without.after);
    Compare(window, "restarted", with.restarted, without.restarted);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace foretoken::trie_drafter

int main(int argc, char** argv) {
  const absl::Status status = foretoken::trie_drafter::Main(argc, argv);
  return status.ok() ? 0 : foretoken::ExitWithError(status);
}
