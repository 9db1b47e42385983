// DecodeLoop: one request from prompt to last token, without its network.
//
// A state machine: it says what to send to the verifier and takes what comes
// back, so that any transport (a blocking call, a gRPC stream, a test) can
// drive it.
//
//   OpenRequest -> OnPrefill -> (NextRound -> OnRound)* until done()
//
// Drafters are opened with the loop, before prefill, and get the committed
// tokens and the next request as soon as a prefill or a round completes;
// NextRound waits for their drafts (round_drafting.h).
//
// OpenRequest may be asked for again at any time: it then replays prompt and
// output, for a session that was lost.
//
// Statistics follow one rule (tokens = rounds + accepted): in every round the
// tokens up to the one that ends the output count, and the last of them counts
// as the bonus. Tokens of a stop string were committed and count, though they
// are not shown; tokens after it do not.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_DECODE_LOOP_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_DECODE_LOOP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/generation/generation.h"
#include "common/grammar/constrained_text.h"
#include "common/speculation/round.h"
#include "common/text/stop_matcher.h"
#include "common/text/tokenizer.h"
#include "services/orchestrator/core/round/output_text.h"
#include "services/orchestrator/core/round/round_drafting.h"
#include "services/orchestrator/core/verifiers/verifier.h"

namespace foretoken::orchestrator {

// The target model and the limits of its verifiers.
struct TargetInfo {
  int32_t vocab_size = 0;
  int64_t max_positions = 0;
  std::vector<TokenId> eos_tokens;
  int32_t max_rows_per_session = TreeLimits().max_rows;
  int32_t embedding_size = 0;  // numbers of an embedding; 0: none are made
  PassCosts costs;
  std::string numerics_fingerprint;
  std::string tokenizer_fingerprint;  // raw SHA-256; empty: not known
  std::string model;                  // its name; empty: not known
};

// One round as it went, for metrics and traces.
struct RoundReport {
  int64_t length = 0;  // committed before it, prompt included
  int32_t draft_nodes = 0;
  int32_t probe_rows = 0;
  int64_t accepted = 0;
  int64_t shown = 0;  // tokens released to the client
  // By drafter, as in by_drafter.
  std::vector<SourceReport> sources;
  std::vector<int32_t> path_drafters;  // of the accepted nodes, root-first
  absl::Duration draft_time;
  absl::Duration verify_time;
  RoundStats stats;
};

class DecodeLoop {
 public:
  // Checks the request, whose prompt is encoded and whose seed is drawn;
  // InvalidArgument names the field. `tokenizer` may be null (ids alone, no
  // text and no stop strings) and must outlive the loop. `grammar` is that of
  // the request's constraint; null: drafts are not checked against one.
  static absl::StatusOr<std::unique_ptr<DecodeLoop>> Create(
      GenerationRequest request, const TargetInfo& target,
      const Tokenizer* tokenizer, DraftSources sources, DraftingOptions options,
      std::shared_ptr<grammar::LiveGrammar> grammar = nullptr);

  // Makes the request one to `target`, a model that was elected since. False,
  // and nothing is changed, if it has output, was pinned to its model, or would
  // have to be checked and encoded anew.
  bool Retarget(const TargetInfo& target);
  // The session request, without the text.
  SessionRequest OpenRequest() const;
  // Prompt and everything committed; valid until the next OnPrefill or OnRound.
  absl::Span<const TokenId> text() const { return text_; }
  // Internal for an answer that does not fit the state.
  absl::Status OnPrefill(const PrefillResult& result, GenerationDelta& delta);
  RoundRequest NextRound();
  absl::Status OnRound(const RoundResult& result, GenerationDelta& delta);

  bool done() const { return summary_.finish != FinishReason::kNone; }
  const GenerationSummary& summary() const { return summary_; }
  // Returns the summary with the prompt; the loop cannot be used afterwards.
  GenerationSummary TakeSummary();
  // Report of the last OnRound.
  const RoundReport& last_round() const { return report_; }

 private:
  struct Pending {  // pushed, not yet shown
    SampledToken token;
    DrafterId drafter;
  };

  DecodeLoop(GenerationRequest request, const TargetInfo& target,
             const Tokenizer* tokenizer, StopMatcher stop_matcher,
             DraftSources sources, DraftingOptions options,
             std::shared_ptr<grammar::ConstrainedText> constraint);
  absl::Status CheckResult(const RoundResult& result) const;
  absl::Status CheckCommitted(const std::vector<SampledToken>& tokens) const;
  // Counts the round and its tokens by drafter.
  void Count(const RoundResult& result, int64_t taken,
             const std::vector<int32_t>& owners);
  // The drafter that a node of the round under way is credited to.
  DrafterId DrafterOf(int32_t node) const;
  // The tree of the round under way, whose last `taken` tokens were committed.
  RoundTree TreeOf(const RoundResult& result, int64_t taken) const;
  // Sends the last `taken` tokens to the drafters and asks for the next drafts,
  // as the announced arm allows.
  void AskDrafters(int64_t taken, const RoundResult* round, DraftArm arm);
  // Appends committed tokens up to the one that ends the output; returns their
  // number.
  int64_t TakeTokens(const std::vector<SampledToken>& tokens,
                     const std::vector<DrafterId>& drafters,
                     FinishReason finish, GenerationDelta& delta);
  bool IsEnd(TokenId token) const;
  void End(FinishReason finish);
  void Show(GenerationDelta& delta);

  GenerationRequest request_;  // its prompt is in text_
  TargetInfo target_;
  const Clock clock_;
  std::vector<TokenId> text_;  // committed, prompt first
  OutputText output_;
  std::vector<Pending> pending_;
  RoundDrafting drafting_;
  const TokenTree* round_tree_ = nullptr;  // of the round under way
  RoundReport report_;
  absl::Time start_;
  absl::Time round_start_;
  absl::Time first_token_;
  bool prefilled_ = false;
  GenerationSummary summary_;
};

// Drives `loop` over `verifier` to its end. `on_step` is called after prefill
// and every round, with the new output; an error it returns ends the request.
absl::Status Generate(
    DecodeLoop& loop, Verifier& verifier,
    absl::FunctionRef<absl::Status(const GenerationDelta&)> on_step);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_DECODE_LOOP_H_
