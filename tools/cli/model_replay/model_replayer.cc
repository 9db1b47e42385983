#include "tools/cli/model_replay/model_replayer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/drafting/replay.h"
#include "tools/cli/model_replay/model_session.h"

namespace foretoken::model_replay {
namespace {

// Length of the uncounted warm-up, a part of the first turn.
constexpr size_t kWarmUpTokens = 32;

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

absl::Status ModelReplayer::Plain(const RecordedTurn& turn,
                                  TurnResult& result) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                             ModelSession::Open(backend_));
  Stopwatch watch;
  FORETOKEN_RETURN_IF_ERROR(session->Append(turn.prompt));
  result.plain.prefill = watch.Seconds();
  // Output token 0 comes from prefill.
  watch = Stopwatch();
  for (size_t done = 1; done < turn.output.size(); ++done) {
    FORETOKEN_RETURN_IF_ERROR(
        session->Pass({turn.output[done - 1]}, {kRootParent}));
    FORETOKEN_RETURN_IF_ERROR(session->Commit({0}));
  }
  result.plain.decode = watch.Seconds();
  return absl::OkStatus();
}

absl::Status ModelReplayer::Speculative(size_t index, const RecordedTurn& turn,
                                        TurnResult& result) {
  const absl::Span<const TokenId> output(turn.output);
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                             ModelSession::Open(backend_));
  Stopwatch watch;
  FORETOKEN_RETURN_IF_ERROR(session->Append(turn.prompt));
  result.speculative.prefill = watch.Seconds();

  watch = Stopwatch();
  FORETOKEN_RETURN_IF_ERROR(
      Timed([&] { return source_.Start(index, turn); }, result));
  FORETOKEN_RETURN_IF_ERROR(
      Timed([&] { return source_.Commit(output.first(1), nullptr); }, result));
  for (size_t done = 1; done < output.size();) {
    FORETOKEN_RETURN_IF_ERROR(
        Timed([&] { return source_.Draft(tree_); }, result));
    if (tree_.size() > max_tree_nodes_) {
      return absl::InternalError(absl::StrCat(
          "draft of ", tree_.size(), " nodes, want at most ", max_tree_nodes_));
    }
    tokens_.assign({output[done - 1]});
    tokens_.insert(tokens_.end(), tree_.tokens.begin(), tree_.tokens.end());
    parents_.assign({kRootParent});
    for (const int32_t parent : tree_.parents) parents_.push_back(parent + 1);

    const Stopwatch pass;
    FORETOKEN_RETURN_IF_ERROR(session->Pass(tokens_, parents_));
    FindAcceptedPath(tree_, output.subspan(done), path_);
    VerifiedRound round;
    round.draft_rows = tree_.size();
    round.accepted = static_cast<int32_t>(path_.size());
    // Row 0 of the pass is the last committed token, row i + 1 is node i.
    for (int32_t& node : path_) ++node;
    path_.insert(path_.begin(), 0);
    FORETOKEN_RETURN_IF_ERROR(session->Commit(path_));
    round.pass_time = absl::Seconds(pass.Seconds());

    // A round commits the accepted tokens and the bonus token, as many as path_
    // has rows. The last round ends with the recording.
    const size_t committed = std::min(path_.size(), output.size() - done);
    FORETOKEN_RETURN_IF_ERROR(Timed(
        [&] { return source_.Commit(output.subspan(done, committed), &round); },
        result));
    done += committed;
    ++result.rounds;
    result.nodes += tree_.size();
    result.tokens += static_cast<int64_t>(committed);
  }
  FORETOKEN_RETURN_IF_ERROR(Timed(
      [&] {
        source_.End();
        return absl::OkStatus();
      },
      result));
  result.speculative.decode = watch.Seconds();
  return absl::OkStatus();
}

absl::StatusOr<TurnResult> ModelReplayer::ReplayTurn(size_t index,
                                                     const RecordedTurn& turn) {
  TurnResult result;
  result.id = turn.id;
  result.category = turn.category;
  // Alternate which side goes first.
  if (index % 2 == 0) FORETOKEN_RETURN_IF_ERROR(Plain(turn, result));
  FORETOKEN_RETURN_IF_ERROR(Speculative(index, turn, result));
  if (index % 2 != 0) FORETOKEN_RETURN_IF_ERROR(Plain(turn, result));
  return result;
}

absl::StatusOr<std::vector<TurnResult>> ModelReplayer::Replay(
    const RecordedSet& set, Progress progress) {
  const auto named = [&](size_t index, const absl::Status& status) {
    return Annotate(
        status, absl::StrCat(set.file, ": ", Name(index, set.turns[index])));
  };
  // Warm up caches and buffers on a part of the first turn.
  if (!set.turns.empty()) {
    RecordedTurn first = set.turns.front();
    first.output.resize(std::min(first.output.size(), kWarmUpTokens));
    FORETOKEN_RETURN_IF_ERROR(named(0, ReplayTurn(0, first).status()));
    source_.Forget();
  }
  std::vector<TurnResult> results;
  for (size_t i = 0; i < set.turns.size(); ++i) {
    absl::StatusOr<TurnResult> result = ReplayTurn(i, set.turns[i]);
    if (!result.ok()) return named(i, result.status());
    results.push_back(*std::move(result));
    progress(static_cast<int64_t>(i) + 1);
  }
  return results;
}

}  // namespace foretoken::model_replay
