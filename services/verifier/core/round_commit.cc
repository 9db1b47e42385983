#include "services/verifier/core/round_commit.h"

#include <algorithm>
#include <utility>

#include "common/speculation/acceptance.h"

namespace foretoken::verifier {
namespace {

// Fills tokens, path, row_tokens and the counts of rows.
std::vector<int32_t> CommitPath(Session& session,
                                const std::vector<SampledToken>& outputs,
                                RoundResult& result) {
  const PendingRound& round = *session.round;
  const TokenTree& tree = round.request.tree;
  result.row_tokens.assign(tree.size() + 1, -1);
  result.row_tokens[0] = outputs[0].token;
  std::vector<bool> acceptable(tree.size(), false);
  for (size_t i = 0; i < round.kept_nodes.size(); ++i) {
    const int32_t node = round.kept_nodes[i];
    const bool is_probe = tree.is_probe(node);
    const bool closed = !round.closed_rows.empty() && round.closed_rows[i + 1];
    // A window is read whatever the constraint says of it.
    if (!closed || is_probe) {
      result.row_tokens[node + 1] = outputs[i + 1].token;
    }
    acceptable[node] = !is_probe && !closed;
    ++(is_probe ? result.stats.probe_rows : result.stats.draft_rows);
  }
  result.stats.dropped_nodes =
      tree.size() - static_cast<int32_t>(round.kept_nodes.size());
  // Outputs of rows that were left out are -1, which no draft token equals:
  // acceptance ends there.
  const Acceptance accepted = Accept(tree, result.row_tokens, acceptable);

  std::vector<int32_t> rows = {0};
  for (const int32_t node : accepted.path) {
    CommitToken(session, tree.tokens()[node]);
    result.tokens.push_back(outputs[rows.back()]);
    // The rest of the path was drawn beyond the end of the output.
    if (session.finish != FinishReason::kNone) return rows;
    result.path.push_back(node);
    rows.push_back(round.row_of_node[node]);
  }
  // The target's own token after the last accepted node: the round is never
  // empty.
  CommitToken(session, accepted.bonus_token);
  result.tokens.push_back(outputs[rows.back()]);
  return rows;
}

}  // namespace

void CommitToken(Session& session, TokenId token) {
  session.tokens.push_back(token);
  if (session.text != nullptr) session.text->Append({token});
  const auto& stops = session.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    session.finish = FinishReason::kStop;
  } else if (session.text != nullptr && session.text->complete()) {
    // Nothing but the end can follow: no pass is spent on it.
    session.finish = FinishReason::kStop;
  } else if (session.length() == session.request.max_length) {
    session.finish = FinishReason::kLength;
  }
}

RoundResult CommitRound(Session& session, const PassStats& pass,
                        std::vector<SampledToken>& outputs,
                        std::vector<int32_t>& rows) {
  const PendingRound& round = *session.round;
  RoundResult result;
  rows = CommitPath(session, outputs, result);
  const int32_t candidates = round.request.candidates;
  if (candidates > 0) {
    result.row_candidates.resize(result.row_tokens.size());
    for (int32_t row = 0; row < round.rows(); ++row) {
      const int32_t node = row == 0 ? -1 : round.kept_nodes[row - 1];
      std::vector<TokenLogprob>& top = outputs[row].top_logprobs;
      // The backend reports as many as any session of the pass asked for.
      if (top.size() > static_cast<size_t>(candidates)) top.resize(candidates);
      result.row_candidates[node + 1] = std::move(top);
    }
  }
  const int32_t logprobs = session.request.sampling.logprobs;
  for (SampledToken& token : result.tokens) {
    // Computed for candidates or for other sessions; this client did not ask
    // for them.
    if (logprobs < 0) token.logprob = 0.0f;
    const size_t wanted = static_cast<size_t>(std::max(logprobs, 0));
    if (token.top_logprobs.size() > wanted) token.top_logprobs.resize(wanted);
  }
  result.length = session.length();
  result.finish = session.finish;
  result.stats.accepted = static_cast<int32_t>(result.path.size());
  result.stats.pass_rows = pass.rows;
  result.stats.pass_sessions = pass.sessions;
  result.stats.queue_time = round.queue_time;
  result.stats.pass_time = pass.forward_time;
  return result;
}

}  // namespace foretoken::verifier
