// TreeMode, `draft_model` without gamma and the draft model's part of `auto`: a
// tree that grows by the draft model's own probabilities.
//
// Every pass expands the likeliest nodes that have no children yet: one node
// where the draft model is sure, several where it is not. The draft
// ends when the next pass is expected to add fewer accepted tokens than it
// costs (DraftPrices), and holds the nodes that are expected to pay for their
// rows in the target's pass. A node's estimate is the product of the chances
// along its path, each corrected by what the session has shown
// (ClaimCalibration).
//
// At a temperature the target draws with the same noise. So the token that the
// draft model draws is the likeliest, and the noise of the others counts, too.
//
// Nodes that other drafters propose for the round (hints) add nothing by
// themselves: they are in the target's tree anyway, until the draft model has
// read what comes before them and leaves them out. But the first pass reads
// the tokens after all of the likely ones at once, so that a text that is
// copied costs one pass and not one per token. Where the text repeats itself,
// a pass also reads ahead by guesses of its own (TextCopy); these are not in
// the target's tree and count once the draft model has drawn them.
//
// The KV of the path that all nodes of the next pass share is kept; other rows
// are computed again, since a row costs little compared with a pass.
//
// Source: the expansion by the draft model's confidence is that of EAGLE-2,
// arXiv:2406.16858; here the expected gain decides, and no fixed size.
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_TREE_MODE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_TREE_MODE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "services/draft_worker/core/claim_calibration.h"
#include "services/draft_worker/core/draft_mode.h"
#include "services/draft_worker/core/text_copy.h"

namespace foretoken::draft_worker {

class TreeMode final : public DraftMode {
 public:
  explicit TreeMode(const ModeLimits& limits);

  int32_t logprobs() const override { return kCandidates; }

  void Observe(const Observation& observation) override;
  void Begin(absl::Span<const TokenId> text, const DraftRoom& room) override;
  void TakeHints(const DraftTree& hints) override;
  void Resume(const DraftRoom& room) override;
  bool done() const override;
  void LayOut(int32_t root, int32_t kept, PassRows& rows) override;
  void Take(absl::Span<const SampledToken> outputs) override;
  void Finish(DraftTree& tree) override;
  size_t keepable() const override { return shared_; }

 private:
  static constexpr int32_t kCandidates = 4;  // likeliest tokens of a row
  static constexpr size_t kRoot = 0;         // the last committed token

  struct Node {
    TokenId token = -1;
    size_t parent = kRoot;
    int32_t depth = 0;  // below the last committed token
    // Probability that the whole path is accepted, by other drafters' estimate
    // and by the draft model's; 0: not proposed, or not known yet.
    float hint = 0.0f;
    float path = 0.0f;
    float claim = 0.0f;  // the draft model's chance of the token
    bool drawn = false;  // the draft model's own token
    bool ends = false;   // nothing follows it
    // A hint that the draft model does not propose, though it has read what
    // comes before it; or one below such a hint.
    bool left_out = false;
    bool read = false;   // the tokens after it are known
    bool planned = false;
    int match = 0;     // by which TextCopy guesses it; 0: not guessed
    int32_t row = -1;  // in the last pass
  };

  // The node below `parent` that holds `token`; nodes_.size() if there is none.
  size_t Find(size_t parent, TokenId token) const;
  void Read(size_t at, const SampledToken& output);
  void Propose(size_t parent, TokenId token, bool drawn, float claim);
  // Weight of a token in the draw after `at`: its probability, raised by its
  // noise at a temperature.
  float Weight(size_t at, TokenId token, float logprob) const;

  // Nodes with a path, likeliest first, so that parents come before children.
  void Rank(std::vector<size_t>& nodes) const;
  // How many of `ranked` are worth their rows in the target's pass.
  size_t Worth(absl::Span<const size_t> ranked) const;
  bool IsHinted(size_t node) const {
    return !nodes_[node].left_out && nodes_[node].hint >= least_hint_;
  }
  // Which hints are in the target's tree: those that pay for their rows and are
  // not left out.
  void CountHints();

  // Chooses the nodes of the next pass.
  void Plan();
  void PlanFirst();
  // Adds the guesses that follow the node `at`, if this pass can read them too.
  // `rows`: of the pass so far. Returns the tokens that they are expected to
  // add.
  double PlanGuesses(size_t at, double node_price, int32_t rows);
  bool CanRead(size_t node) const;
  // Rows of a pass that reads after `nodes`; sets `shared` to the length of the
  // path above all of them.
  int32_t RowsOf(absl::Span<const size_t> nodes, size_t& shared) const;
  // The nodes of the path to `node`, it included.
  std::vector<size_t> PathTo(size_t node) const;
  // The path that a round is likeliest to accept.
  std::vector<size_t> BestPath() const;
  void SetChain(absl::Span<const size_t> path, size_t shared);

  ClaimCalibration calibration_;
  TextCopy copy_;
  // Nodes read on the path that was committed, and how many of those had the
  // next token of it below them.
  float reads_ = 0.0f;
  float hits_ = 0.0f;

  // The draft.
  int64_t text_length_ = 0;
  std::vector<Node> nodes_;   // parents first; [kRoot] is no node of the tree
  std::vector<size_t> plan_;  // of the next pass, ascending
  double gain_ = 0.0;         // tokens that it is expected to add
  float least_hint_ = 0.0f;   // of the hints that are in the target's tree
  size_t hinted_ = 0;         // how many those are
  size_t shared_ = 0;         // tokens of the chain above all of plan_
  std::vector<size_t> kept_;  // nodes without rows in the last pass
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_TREE_MODE_H_
