#include "services/orchestrator/adapters/remote_crest.h"

#include <algorithm>
#include <utility>

#include "common/rpc/convert.h"

namespace foretoken::orchestrator {
namespace {

constexpr size_t kMaxContext = 16;

// Parents come before their children.
bool IsTree(const v1::TokenTree& tree) {
  if (tree.parents_size() != tree.tokens_size()) return false;
  for (int i = 0; i < tree.parents_size(); ++i) {
    if (tree.parents(i) < kRootParent || tree.parents(i) >= i) return false;
  }
  return true;
}

// The share of the continuations that pass each node.
void FillProbs(const v1::CrestLookupResponse& message, DraftTree& tree) {
  const v1::TokenTree& sent = message.tree();
  if (sent.probabilities_size() == tree.size()) {
    tree.probs.assign(sent.probabilities().begin(), sent.probabilities().end());
    return;
  }
  tree.probs.assign(tree.size(), 0.0f);
  if (message.counts_size() != tree.size()) return;
  double all = 0;
  for (int i = 0; i < tree.size(); ++i) {
    if (tree.parents[i] == kRootParent) all += message.counts(i);
  }
  for (int i = 0; i < tree.size() && all > 0; ++i) {
    tree.probs[i] = static_cast<float>(message.counts(i) / all);
  }
}

}  // namespace

RemoteCrest::RemoteCrest(Options options, DraftPeer& peer)
    : RemoteSource(peer), options_(std::move(options)) {}

RemoteCrest::~RemoteCrest() { Hangup(); }

void RemoteCrest::Start(const DraftOpen& open) {
  const size_t kept = std::min(open.tokens.size(), kMaxContext);
  tail_.assign(open.tokens.end() - kept, open.tokens.end());
  DialAhead();
}

std::shared_ptr<RemoteCrest::Call> RemoteCrest::Dial() {
  return Call::Start(options_.method, absl::InfiniteFuture(), peer().token(),
                     peer().live_calls());
}

void RemoteCrest::Ask(const DraftRound& round) {
  tail_.insert(tail_.end(), round.committed.begin(), round.committed.end());
  if (tail_.size() > kMaxContext) {
    tail_.erase(tail_.begin(), tail_.end() - kMaxContext);
  }
  ++sequence_;
  SourceDraft leftovers;
  if (round.max_nodes == 0) {
    PassRound(leftovers);
    return;
  }
  if (!PrepareAsk(leftovers)) return;
  v1::CrestLookupRequest request;
  request.set_sequence(sequence_);
  request.set_datastore(options_.datastore);
  request.mutable_context()->Add(tail_.begin(), tail_.end());
  request.set_max_nodes(round.max_nodes);
  request.set_tokenizer_fingerprint(options_.tokenizer_fingerprint);
  SendAsk(std::move(request));
}

RemoteCrest::Answer RemoteCrest::Parse(v1::CrestLookupResponse& message,
                                       SourceDraft& draft) {
  if (message.sequence() != sequence_) return Answer::kStale;
  if (message.tree().tokens_size() > rpc::kMaxTreeNodes ||
      !IsTree(message.tree())) {
    return Answer::kBad;
  }
  draft.tree.tokens.assign(message.tree().tokens().begin(),
                           message.tree().tokens().end());
  draft.tree.parents.assign(message.tree().parents().begin(),
                            message.tree().parents().end());
  FillProbs(message, draft.tree);
  return Answer::kFresh;
}

}  // namespace foretoken::orchestrator
