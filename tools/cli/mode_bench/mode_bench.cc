#include "tools/cli/mode_bench/mode_bench.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace foretoken::mode_bench {
namespace {

constexpr char kBaseline[] = "off";
// Fewer would leave a slice to the chance of a few prompts.
constexpr int kLeastRequests = 8;  // of a slice, unless asked for
constexpr int kWarmUpClients = 4;  // before an open loop
// A request that takes longer ends the run.
constexpr absl::Duration kRequestTime = absl::Minutes(30);

// "key=value", which cannot begin a mode.
bool IsParameter(absl::string_view part) {
  const size_t equals = part.find('=');
  // A colon before "=" belongs to the mode's own parameters:
  // "crest:datastore=x" begins a mode.
  return equals != absl::string_view::npos &&
         part.substr(0, equals).find(':') == absl::string_view::npos;
}

double DecodeRate(const LoadResult& slice) {
  int64_t tokens = 0;
  double milliseconds = 0;
  for (const LoadOutcome& outcome : slice.outcomes) {
    if (outcome.refused) continue;
    // The sum of times over the sum of tokens, so that a long answer weighs
    // more than a short one, as it does for a server.
    tokens += outcome.decoded_tokens();
    milliseconds += outcome.decode_ms();
  }
  // Every answer came in one chunk: there was no decoding to time.
  return milliseconds > 0 ? static_cast<double>(tokens) / milliseconds * 1e3
                          : std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> LogsOf(const std::vector<double>& rates) {
  std::vector<double> logs;
  // Speeds are compared as ratios, and a mean of logarithms treats twice as
  // fast and half as fast alike.
  for (const double rate : rates) logs.push_back(std::log(rate));
  return logs;
}

std::vector<double> LogRatiosOf(const std::vector<double>& own,
                                const std::vector<double>& other) {
  // Pairs are matched by number: both were measured next to each other, so slow
  // changes of the machine cancel out.
  FORETOKEN_CHECK(own.size() == other.size());
  std::vector<double> logs;
  for (size_t pair = 0; pair < own.size(); ++pair) {
    logs.push_back(std::log(own[pair] / other[pair]));
  }
  return logs;
}

}  // namespace

std::vector<std::string> SplitModes(absl::string_view text) {
  std::vector<std::string> modes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (!modes.empty() && IsParameter(part)) {
      absl::StrAppend(&modes.back(), ",", part);
    } else {
      modes.emplace_back(part);
    }
  }
  return modes;
}

int ModeBenchOptions::RequestsOf(int clients) const {
  if (!open_loop()) {
    return requests > 0 ? requests : std::max(kLeastRequests, 2 * clients);
  }
  const int rows = static_cast<int>(arrivals.size());
  return requests > 0 ? std::min(requests, rows) : rows;
}

void CellResult::Add(const LoadResult& slice) {
  tokens_per_s.push_back(slice.tokens_per_s);
  decode_tokens_per_s.push_back(DecodeRate(slice));
  for (const LoadOutcome& outcome : slice.outcomes) {
    ++requests;
    if (outcome.refused) {
      ++refused;
      continue;
    }
    tokens += static_cast<int64_t>(outcome.tokens.size());
    rounds += outcome.summary.rounds;
    drafted += outcome.summary.drafted;
    accepted += outcome.summary.accepted;
    for (const DrafterCounts& counts : outcome.summary.by_drafter) {
      DrafterCounts& sum = by_drafter[counts.id];
      sum.id = counts.id;
      sum.drafted += counts.drafted;
      sum.accepted += counts.accepted;
      sum.rounds += counts.rounds;
      sum.degraded += counts.degraded;
      sum.shortened += counts.shortened;
    }
    draft_ms += absl::ToDoubleMilliseconds(outcome.summary.draft_time);
    verify_ms += absl::ToDoubleMilliseconds(outcome.summary.verify_time);
    decode_ms += outcome.decode_ms();
    first_token_ms.push_back(outcome.first_token_ms());
    latency_ms.push_back(outcome.latency_ms());
    outcome.AppendTokenGaps(token_gap_ms);
  }
}

int64_t CellResult::shortened_drafts() const {
  int64_t drafts = 0;
  for (const auto& [id, counts] : by_drafter) drafts += counts.shortened;
  return drafts;
}

std::vector<double> CellResult::LogRates() const {
  return LogsOf(tokens_per_s);
}

std::vector<double> CellResult::LogDecodeRates() const {
  return LogsOf(decode_tokens_per_s);
}

std::vector<double> CellResult::LogRatios(const CellResult& other) const {
  return LogRatiosOf(tokens_per_s, other.tokens_per_s);
}

std::vector<double> CellResult::LogDecodeRatios(const CellResult& other) const {
  return LogRatiosOf(decode_tokens_per_s, other.decode_tokens_per_s);
}

absl::Status ModeBench::Check(const ModeBenchOptions& options) {
  // Every bad mode is found before anything is measured; the run may take
  // hours.
  for (const std::string& mode : options.modes) {
    FORETOKEN_RETURN_IF_ERROR(Annotate(Mode::Parse(mode).status(), "--modes"));
  }
  if (std::find(options.modes.begin(), options.modes.end(), kBaseline) ==
      options.modes.end()) {
    return absl::InvalidArgumentError(
        "--modes: must include off, the baseline");
  }
  if (options.open_loop()) return absl::OkStatus();
  // With fewer requests than clients a slice would never reach its concurrency.
  for (const int clients : options.concurrency) {
    if (options.RequestsOf(clients) >= clients) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--requests=", options.requests,
                     ": want at least one for each of ", clients, " clients"));
  }
  return absl::OkStatus();
}

ModeBench::ModeBench(const ModeBenchOptions& options,
                     const std::vector<cli::FilePrompt>& prompts,
                     Generator& generator, const LoadOptions& load)
    : options_(options),
      prompts_(prompts),
      generator_(generator),
      load_(load),
      schedule_(options.pairs, options.modes.size()),
      clients_(options.open_loop() ? std::vector<int>{0}
                                   : options.concurrency) {
  for (const std::string& text : options.modes) {
    absl::StatusOr<Mode> mode = Mode::Parse(text);
    // Check has parsed it before.
    FORETOKEN_CHECK(mode.ok());
    modes_.push_back(*std::move(mode));
  }
  baseline_ = std::find(options.modes.begin(), options.modes.end(), kBaseline) -
              options.modes.begin();
  for (const int clients : clients_) {
    for (size_t i = 0; i < modes_.size(); ++i) {
      CellResult cell;
      cell.mode = options.modes[i];
      cell.baseline = i == baseline_;
      cell.concurrency = clients;
      result_.cells.push_back(std::move(cell));
    }
  }
}

// The trace is not replayed for the warm-up: it only has to load weights,
// compile grammars and grow caches.
int ModeBench::WarmUpClients() const {
  return options_.open_loop()
             ? std::min(kWarmUpClients, options_.RequestsOf(0))
             : *std::max_element(clients_.begin(), clients_.end());
}

int ModeBench::WarmUpRequests() const {
  const int clients = WarmUpClients();
  return std::min(2 * clients, options_.RequestsOf(clients));
}

int64_t ModeBench::MostRequests() const {
  int64_t requests = 0;
  for (const int clients : clients_) requests += options_.RequestsOf(clients);
  requests = requests * options_.pairs.most() + WarmUpRequests();
  return requests * static_cast<int64_t>(modes_.size());
}

std::vector<LoadRequest> ModeBench::MakeWork(int pair, int clients,
                                             const Mode& mode) const {
  const size_t count = options_.RequestsOf(clients);
  // Each pair continues where the one before ended. A trace is cut into whole
  // windows, so that times increase.
  // Every mode of a pair gets the same prompts, as `first` depends on the pair
  // alone.
  const size_t first = options_.open_loop()
                           ? pair % (options_.arrivals.size() / count) * count
                           : static_cast<size_t>(pair) * count;
  std::vector<LoadRequest> work(count);
  for (size_t i = 0; i < count; ++i) {
    work[i].prompt = (first + i) % prompts_.size();
    GenerationRequest& request = work[i].request;
    const cli::FilePrompt& prompt = prompts_[work[i].prompt];
    request.text = prompt.text;
    request.prompt = prompt.ids;
    request.constraint = prompt.constraint;
    request.mode = mode;
    request.sampling.temperature = static_cast<float>(options_.temperature);
    // The same for all requests of a prompt, so that outputs can be compared.
    request.sampling.seed = options_.pairs.seed + work[i].prompt;
    request.max_tokens = options_.max_tokens;
    request.ignore_eos = options_.ignore_eos;
    if (!options_.open_loop()) continue;
    const Arrival& arrival = options_.arrivals[first + i];
    work[i].at = (arrival.at - options_.arrivals[first].at) / options_.speed;
    // The output lengths of the trace are part of its load, so the model's own
    // end is ignored; --max-tokens still caps them.
    request.max_tokens = std::min(arrival.output_tokens, options_.max_tokens);
    request.ignore_eos = true;
  }
  return work;
}

absl::StatusOr<LoadResult> ModeBench::RunSlice(size_t mode, int clients,
                                               bool open_loop,
                                               std::vector<LoadRequest> work) {
  // A scope of its own for each slice: a drafter that learned from another
  // mode's outputs would make the order of modes matter.
  const std::string scope = absl::StrCat(options_.scope, "-", slices_++);
  const absl::Time deadline = load_.clock() + kRequestTime;
  for (LoadRequest& request : work) {
    request.request.cache_scope = scope;
    // The deadline counts from when the request is sent.
    request.request.deadline = deadline + request.at;
  }
  absl::StatusOr<LoadResult> slice =
      open_loop ? RunOpenLoop(generator_, work, load_)
                : RunClosedLoop(generator_, work, clients, load_);
  const std::string& name = options_.modes[mode];
  FORETOKEN_RETURN_IF_ERROR(Annotate(
      slice.status(),
      open_loop ? absl::StrCat("mode ", name)
                : absl::StrCat("mode ", name, ", ", clients, " at once")));
  for (size_t i = 0; i < work.size(); ++i) {
    // Every output is compared with that of the first mode that answered the
    // prompt: a benchmark of a lossless method that does not check losslessness
    // may measure something else.
    const LoadOutcome& outcome = slice->outcomes[i];
    if (outcome.refused) continue;
    FORETOKEN_RETURN_IF_ERROR(outputs_.Add(name, outcome.prompt, outcome.tokens,
                                           work[i].request.max_tokens));
    result_.numerics_fingerprint = outcome.numerics_fingerprint;
  }
  // No rate, and its logarithm would be infinite.
  if (slice->tokens_per_s > 0) return slice;
  return absl::UnavailableError(
      absl::StrCat("mode ", name, ": all requests of a slice were refused"));
}

absl::Status ModeBench::WarmUp() {
  const int clients = WarmUpClients();
  for (size_t mode = 0; mode < modes_.size(); ++mode) {
    // The first pair's prompts, whose KV no scope shares with the measured
    // slices.
    std::vector<LoadRequest> work = MakeWork(0, clients, modes_[mode]);
    work.resize(WarmUpRequests());
    FORETOKEN_RETURN_IF_ERROR(
        RunSlice(mode, clients, /*open_loop=*/false, std::move(work)).status());
  }
  return absl::OkStatus();
}

absl::Status ModeBench::RunPair(int pair, size_t group) {
  for (const size_t mode : schedule_.Order(pair, group)) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const LoadResult slice,
        RunSlice(mode, clients_[group], options_.open_loop(),
                 MakeWork(pair, clients_[group], modes_[mode])));
    Cell(group, mode).Add(slice);
  }
  return absl::OkStatus();
}

std::vector<Interval> ModeBench::Ratios(size_t group) {
  std::vector<Interval> ratios;
  for (size_t mode = 0; mode < modes_.size(); ++mode) {
    if (mode == baseline_) continue;
    ratios.push_back(
        GeometricInterval(Cell(group, mode).LogRatios(Cell(group, baseline_))));
  }
  return ratios;
}

absl::StatusOr<ModeBenchResult> ModeBench::Run() {
  FORETOKEN_RETURN_IF_ERROR(WarmUp());
  // Pairs outermost: each concurrency's are spread over the whole run.
  bool more = true;
  for (int pair = 0; more; ++pair) {
    more = false;
    for (size_t group = 0; group < clients_.size(); ++group) {
      // All modes of a group have the same number of pairs, so the baseline's
      // cell or any other will do.
      const int done = static_cast<int>(Cell(group, 0).tokens_per_s.size());
      if (!schedule_.NeedsMore(done, Ratios(group))) continue;
      more = true;
      FORETOKEN_RETURN_IF_ERROR(RunPair(pair, group));
    }
  }
  result_.tokens_compared = outputs_.compared();
  return std::move(result_);
}

}  // namespace foretoken::mode_bench
