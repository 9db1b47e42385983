#include "tests/lab/model_replay/model_replayer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/mix.h"
#include "common/base/status_macros.h"
#include "common/drafting/replay.h"

namespace foretoken::model_replay {
namespace {

// Length of the uncounted warm-up, a part of the first turn.
constexpr size_t kWarmUpTokens = 32;
// Cache scope of the text that stands in for all others.
constexpr char kStandInScope[] = "stand-in";

class Stopwatch {
 public:
  double Seconds() const {
    const std::chrono::duration<double> passed = Clock::now() - start_;
    return passed.count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

std::string Name(size_t index, const RecordedTurn& turn) {
  return absl::StrCat("turn ", index, " (", turn.id, ")");
}

}  // namespace

std::vector<size_t> Select(const Selection& selection, RecordedSet& set) {
  std::vector<RecordedTurn> kept;
  std::vector<size_t> stood;
  std::map<std::string, int64_t> of_category;
  for (size_t i = 0; i < set.turns.size(); ++i) {
    RecordedTurn& turn = set.turns[i];
    if (selection.max_requests > 0 &&
        static_cast<int64_t>(kept.size()) == selection.max_requests) {
      break;
    }
    if (selection.requests_per_category > 0 &&
        ++of_category[turn.category] > selection.requests_per_category) {
      continue;
    }
    if (selection.max_new_tokens > 0 &&
        static_cast<int64_t>(turn.output.size()) > selection.max_new_tokens) {
      turn.output.resize(static_cast<size_t>(selection.max_new_tokens));
    }
    kept.push_back(std::move(turn));
    stood.push_back(i);
  }
  set.turns = std::move(kept);
  return stood;
}

absl::Status CheckFits(const RecordedSet& set, const ModelConfig& config,
                       int max_tree_nodes) {
  for (size_t i = 0; i < set.turns.size(); ++i) {
    const RecordedTurn& turn = set.turns[i];
    for (const auto& tokens : {turn.prompt, turn.output}) {
      const TokenId highest = *std::max_element(tokens.begin(), tokens.end());
      if (highest < config.vocab_size) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(set.file, ": ", Name(i, turn), " has token ", highest,
                       ", but the model's vocabulary is ", config.vocab_size));
    }
    const int64_t positions = static_cast<int64_t>(
        turn.prompt.size() + turn.output.size() + max_tree_nodes);
    if (positions > config.max_positions) {
      return absl::InvalidArgumentError(
          absl::StrCat(set.file, ": ", Name(i, turn), " takes ", positions,
                       " positions with its drafts, but the model's limit is ",
                       config.max_positions));
    }
  }
  return absl::OkStatus();
}

absl::Status ModelReplayer::Timed(absl::FunctionRef<absl::Status()> drafting,
                                  TurnResult& result) {
  const Stopwatch watch;
  const absl::Status status = drafting();
  result.drafting += watch.Seconds();
  return status;
}

Window WindowOf(const Windows& windows, size_t index, size_t size) {
  const auto tokens = static_cast<size_t>(windows.tokens);
  if (tokens == 0 || size <= tokens + 1) return {1, size};
  const uint64_t place = windows.places.empty() ? index : windows.places[index];
  const uint64_t drawn = MixBits(MixBits(windows.seed) + place * kMixStep);
  const size_t begin = 1 + drawn % (size - tokens);
  return {begin, begin + tokens};
}

absl::Status ModelReplayer::FillPrefixCache(const RecordedSet& set) {
  size_t longest = 0;
  for (const RecordedTurn& turn : set.turns) {
    longest = std::max(longest, turn.prompt.size() + turn.output.size());
  }
  stand_in_.resize(longest);
  for (size_t i = 0; i < longest; ++i) {
    stand_in_[i] = static_cast<TokenId>(
        i % static_cast<size_t>(backend_.config().vocab_size));
  }
  return ModelSession::Open(backend_, kStandInScope, stand_in_).status();
}

absl::StatusOr<std::unique_ptr<ModelSession>> ModelReplayer::OpenBefore(
    const RecordedTurn& turn, const Window& window) {
  if (windows_.tokens == 0) {
    return ModelSession::Open(backend_, "", turn.prompt);
  }
  // The token before the window is row 0 of the first pass.
  const size_t before = turn.prompt.size() + window.begin - 1;
  return ModelSession::Open(backend_, kStandInScope,
                            absl::MakeConstSpan(stand_in_).first(before));
}

absl::StatusOr<double> ModelReplayer::Plain(ModelSession& session,
                                            const RecordedTurn& turn,
                                            const Window& window) {
  const Stopwatch watch;
  for (size_t done = window.begin; done < window.end; ++done) {
    FORETOKEN_RETURN_IF_ERROR(
        session.Pass({turn.output[done - 1]}, {kRootParent}));
    FORETOKEN_RETURN_IF_ERROR(session.Commit({0}));
  }
  return watch.Seconds();
}

absl::Status ModelReplayer::StartSource(RoundSource& source, size_t index,
                                        const RecordedTurn& turn,
                                        const Window& window,
                                        TurnResult& result) {
  const absl::Span<const TokenId> output(turn.output);
  const Stopwatch watch;
  FORETOKEN_RETURN_IF_ERROR(
      Timed([&] { return source.Start(index, turn); }, result));
  FORETOKEN_RETURN_IF_ERROR(
      Timed([&] { return source.Commit(output.first(1), nullptr); }, result));
  result.indexing = result.drafting;
  result.speculative = watch.Seconds();
  // The output before the window is told in one piece, as text without a round.
  if (window.begin == 1) return absl::OkStatus();
  return source.Commit(output.subspan(1, window.begin - 1), nullptr);
}

absl::Status ModelReplayer::Speculative(ModelSession& session,
                                        RoundSource& source, size_t index,
                                        const RecordedTurn& turn,
                                        const Window& window,
                                        TurnResult& result) {
  const absl::Span<const TokenId> output(turn.output);
  FORETOKEN_RETURN_IF_ERROR(StartSource(source, index, turn, window, result));
  const Stopwatch watch;
  // A round that has begun in the window counts whole: were its tokens behind
  // the window's end dropped, every window would end with a slow round.
  for (size_t done = window.begin; done < window.end;) {
    FORETOKEN_RETURN_IF_ERROR(
        Timed([&] { return source.Draft(tree_); }, result));
    if (tree_.size() > max_tree_nodes_) {
      return absl::InternalError(absl::StrCat(
          "draft of ", tree_.size(), " nodes, want at most ", max_tree_nodes_));
    }
    tokens_.assign({output[done - 1]});
    tokens_.insert(tokens_.end(), tree_.tokens.begin(), tree_.tokens.end());
    parents_.assign({kRootParent});
    for (const int32_t parent : tree_.parents) parents_.push_back(parent + 1);

    const Stopwatch pass;
    FORETOKEN_RETURN_IF_ERROR(session.Pass(tokens_, parents_));
    FindAcceptedPath(tree_, output.subspan(done), path_);
    VerifiedRound round;
    round.draft_rows = tree_.size();
    round.accepted = static_cast<int32_t>(path_.size());
    // Row 0 of the pass is the last committed token, row i + 1 is node i.
    for (int32_t& node : path_) ++node;
    path_.insert(path_.begin(), 0);
    FORETOKEN_RETURN_IF_ERROR(session.Commit(path_));
    const double seconds = pass.Seconds();
    result.verifying += seconds;
    round.pass_time = absl::Seconds(seconds);

    // A round commits the accepted tokens and the bonus token, as many as path_
    // has rows. The last round ends with the recording.
    const size_t committed = std::min(path_.size(), output.size() - done);
    FORETOKEN_RETURN_IF_ERROR(Timed(
        [&] { return source.Commit(output.subspan(done, committed), &round); },
        result));
    done += committed;
    ++result.rounds;
    result.nodes += tree_.size();
    result.tokens += static_cast<int64_t>(committed);
  }
  FORETOKEN_RETURN_IF_ERROR(Timed(
      [&] {
        source.End();
        return absl::OkStatus();
      },
      result));
  result.speculative += watch.Seconds();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TurnResult>> ModelReplayer::ReplayTurn(
    size_t index, const RecordedTurn& turn) {
  const Window window = WindowOf(windows_, index, turn.output.size());
  const Stopwatch watch;
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                             OpenBefore(turn, window));
  const double prefill = windows_.tokens == 0 ? watch.Seconds() : 0.0;

  std::vector<TurnResult> results(sources_.size());
  double plain = 0;
  // The sides take turns in going first; the last of them is plain.
  const size_t sides = sources_.size() + 1;
  for (size_t i = 0; i < sides; ++i) {
    const size_t side = (index + sides - 1 + i) % sides;
    if (side == sources_.size()) {
      FORETOKEN_ASSIGN_OR_RETURN(plain, Plain(*session, turn, window));
    } else {
      FORETOKEN_RETURN_IF_ERROR(Speculative(*session, *sources_[side], index,
                                            turn, window, results[side]));
    }
    FORETOKEN_RETURN_IF_ERROR(session->Truncate(
        static_cast<int64_t>(turn.prompt.size() + window.begin - 1)));
  }
  for (TurnResult& result : results) {
    result.id = turn.id;
    result.category = turn.category;
    result.length = static_cast<int64_t>(turn.output.size()) - 1;
    result.plain_tokens = static_cast<int64_t>(window.end - window.begin);
    result.prefill = prefill;
    result.plain = plain;
  }
  return results;
}

absl::Status ModelReplayer::Replay(const RecordedSet& set, Wanted wanted,
                                   OnTurn on_turn) {
  const auto named = [&](size_t index, const absl::Status& status) {
    return Annotate(
        status, absl::StrCat(set.file, ": ", Name(index, set.turns[index])));
  };
  if (windows_.tokens > 0) FORETOKEN_RETURN_IF_ERROR(FillPrefixCache(set));
  // Warm up caches and buffers on a part of the first turn.
  if (!set.turns.empty()) {
    RecordedTurn first = set.turns.front();
    first.output.resize(std::min(first.output.size(), kWarmUpTokens));
    FORETOKEN_RETURN_IF_ERROR(named(0, ReplayTurn(0, first).status()));
    for (RoundSource* source : sources_) source->Forget();
  }
  for (size_t i = 0; i < set.turns.size(); ++i) {
    if (!wanted(i)) continue;
    const auto results = ReplayTurn(i, set.turns[i]);
    if (!results.ok()) return named(i, results.status());
    FORETOKEN_RETURN_IF_ERROR(named(i, on_turn(i, *results)));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::model_replay
