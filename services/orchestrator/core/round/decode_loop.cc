#include "services/orchestrator/core/round/decode_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"
#include "services/orchestrator/core/round/grammar_source.h"

namespace foretoken::orchestrator {
namespace {

// The tokens that end the output, without duplicates.
std::vector<TokenId> StopTokens(const GenerationRequest& request,
                                const TargetInfo& target) {
  std::vector<TokenId> tokens = request.stop_token_ids;
  if (!request.ignore_eos) {
    tokens.insert(tokens.end(), target.eos_tokens.begin(),
                  target.eos_tokens.end());
  }
  // Sorted for the binary search of IsEnd; a client may repeat a token that is
  // the model's own.
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

absl::Status Check(const GenerationRequest& request, const TargetInfo& target,
                   const Tokenizer* tokenizer) {
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError("prompt: it is empty");
  }
  FORETOKEN_RETURN_IF_ERROR(
      CheckTokenIds("prompt", request.prompt, target.vocab_size));
  FORETOKEN_RETURN_IF_ERROR(CheckTokenIds(
      "stop_token_ids", request.stop_token_ids, target.vocab_size));
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (request.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens is ", request.max_tokens, ", want 1 or more"));
  }
  // Subtract rather than add: max_tokens may be close to 2^63.
  if (prompt > target.max_positions ||
      request.max_tokens > target.max_positions - prompt) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_tokens is ", request.max_tokens, ": with the prompt's ", prompt,
        " tokens it is too much, this model's maximum context length is ",
        target.max_positions, " tokens"));
  }
  if (tokenizer == nullptr && !request.stop_strings.empty()) {
    return absl::InvalidArgumentError("stop strings need a tokenizer");
  }
  return request.sampling.Validate(target.vocab_size);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecodeLoop>> DecodeLoop::Create(
    GenerationRequest request, const TargetInfo& target,
    const Tokenizer* tokenizer, DraftSources sources, DraftingOptions options,
    std::shared_ptr<grammar::LiveGrammar> grammar) {
  request.sampling.end_tokens = StopTokens(request, target);
  // After the end tokens are merged, as Validate checks them too.
  FORETOKEN_RETURN_IF_ERROR(Check(request, target, tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(StopMatcher stop_matcher,
                             StopMatcher::Create(request.stop_strings));
  std::shared_ptr<grammar::ConstrainedText> constraint;
  if (grammar != nullptr) {
    constraint = std::make_shared<grammar::ConstrainedText>(
        std::move(grammar), request.sampling.end_tokens);
    // A mode that is named keeps its drafts to what it is named for.
    if (options.economical && tokenizer != nullptr) {
      sources.insert(sources.begin(),
                     std::make_unique<GrammarSource>(constraint, *tokenizer,
                                                     options.clock));
    }
  }
  return std::unique_ptr<DecodeLoop>(new DecodeLoop(
      std::move(request), target, tokenizer, std::move(stop_matcher),
      std::move(sources), std::move(options), std::move(constraint)));
}

// From here on the text lives in text_ alone; request_.prompt is empty.
DecodeLoop::DecodeLoop(GenerationRequest request, const TargetInfo& target,
                       const Tokenizer* tokenizer, StopMatcher stop_matcher,
                       DraftSources sources, DraftingOptions options,
                       std::shared_ptr<grammar::ConstrainedText> constraint)
    : request_(std::move(request)),
      target_(target),
      clock_(options.clock),
      text_(std::move(request_.prompt)),
      output_(tokenizer, std::move(stop_matcher), request_.sampling.min_tokens),
      drafting_(std::move(sources), target.vocab_size, std::move(options),
                std::move(constraint)),
      start_(clock_()) {
  summary_.request_id = request_.request_id;
  summary_.mode = request_.mode.value_or(Mode()).ToString();
  summary_.seed = request_.sampling.seed;
  summary_.prompt_tokens = static_cast<int64_t>(text_.size());
  for (int i = 0; i < drafting_.size(); ++i) {
    summary_.by_drafter.push_back({drafting_.id(i)});
  }
  DraftOpen open;
  open.prompt_length = summary_.prompt_tokens;
  open.sampling = request_.sampling;
  open.cache_scope = request_.cache_scope;
  open.page_scope = request_.scope_of_pages();
  open.request_id = request_.request_id;
  open.traceparent = request_.traceparent;
  // Drafters read the prompt while the verifier prefills: it must not move.
  text_.reserve(text_.size() + static_cast<size_t>(request_.max_tokens));
  drafting_.Start(open, text_);
}

bool DecodeLoop::Retarget(const TargetInfo& target) {
  // After the first token the output has the old model's bits, and a client
  // that pinned a fingerprint wants no other. Everything that was checked or
  // planned with the old target must hold for the new one as well; more rows
  // than before do no harm.
  if (prefilled_ || !request_.numerics_fingerprint.empty() ||
      target.numerics_fingerprint == target_.numerics_fingerprint ||
      target.vocab_size != target_.vocab_size ||
      target.max_positions != target_.max_positions ||
      target.max_rows_per_session < target_.max_rows_per_session ||
      target.eos_tokens != target_.eos_tokens ||
      target.tokenizer_fingerprint != target_.tokenizer_fingerprint) {
    return false;
  }
  target_.numerics_fingerprint = target.numerics_fingerprint;
  return true;
}

SessionRequest DecodeLoop::OpenRequest() const {
  SessionRequest session;
  static_cast<SessionTerms&>(session) = request_;
  // The verifier shares pages by this scope; the drafters' own scope is for
  // histories.
  session.cache_scope = request_.scope_of_pages();
  session.prompt_length = summary_.prompt_tokens;
  session.max_length = summary_.prompt_tokens + request_.max_tokens;
  session.stop_tokens = request_.sampling.end_tokens;
  session.caller = request_.caller.name;
  session.weight = request_.caller.weight;
  session.want_row_tokens = drafting_.needs_rows();
  session.numerics_fingerprint = target_.numerics_fingerprint;
  return session;
}

absl::Status DecodeLoop::OnPrefill(const PrefillResult& result,
                                   GenerationDelta& delta) {
  // A replay after a failover has read tokens that are committed already: it
  // must end exactly at them and add none. A first prefill adds one.
  const bool replayed = prefilled_;
  if (done() || result.tokens.size() != (replayed ? 0 : 1) ||
      result.length != static_cast<int64_t>(text_.size() + !replayed)) {
    return absl::InternalError(
        absl::StrCat("prefill ended at ", result.length, " tokens with ",
                     result.tokens.size(), " new ones, after ", text_.size()));
  }
  if (replayed) return absl::OkStatus();
  // A verifier is another process: a token outside the vocabulary would index
  // tables of drafters and detokenizer.
  FORETOKEN_RETURN_IF_ERROR(CheckCommitted(result.tokens));
  prefilled_ = true;
  first_token_ = clock_();
  summary_.time_to_first_token = first_token_ - start_;
  summary_.reused_tokens = result.reused_tokens;
  delta.start = {target_.numerics_fingerprint, summary_.seed,
                 summary_.request_id};
  const int64_t taken =
      TakeTokens(result.tokens, {DrafterId::kTarget}, result.finish, delta);
  AskDrafters(taken, nullptr, result.arm);
  return absl::OkStatus();
}

void DecodeLoop::AskDrafters(int64_t taken, const RoundResult* round,
                             DraftArm arm) {
  CommittedText committed;
  committed.tokens = absl::MakeConstSpan(text_).last(taken);
  committed.text = text_;
  // A path of d drafts commits d + 1 tokens.
  if (!done()) {
    // Rows deeper than this could not be accepted, so they would be verified
    // for nothing. The bonus token takes the last place.
    committed.max_depth = summary_.prompt_tokens + request_.max_tokens -
                          static_cast<int64_t>(text_.size()) - 1;
  }
  committed.round = round;
  committed.verify_time = report_.verify_time;
  committed.arm = arm;
  drafting_.Commit(committed);
}

RoundRequest DecodeLoop::NextRound() {
  FORETOKEN_CHECK(prefilled_ && !done());
  RoundRequest round;
  round.length = static_cast<int64_t>(text_.size());
  // A pointer, not a copy: the tree is needed again when the result comes, and
  // drafting_ keeps it until the next Draft.
  round_tree_ = &drafting_.Draft();
  round.tree = *round_tree_;
  round.candidates = drafting_.candidates();
  round.arm = drafting_.arm();
  round_start_ = clock_();
  return round;
}

absl::Status DecodeLoop::CheckResult(const RoundResult& result) const {
  // Checked in full before anything changes: the loop is either a whole round
  // further or where it was, so that a lossless replay stays possible.
  const size_t count = result.tokens.size();
  if (done() || round_tree_ == nullptr || count == 0 ||
      result.path.size() + 1 != count ||
      result.length != static_cast<int64_t>(text_.size() + count)) {
    return absl::InternalError(absl::StrCat(
        "a round committed ", count, " tokens along a path of ",
        result.path.size(), ", to ", result.length, " after ", text_.size()));
  }
  // Probes are rows of the window and never accepted; an index among them would
  // be a fault of the verifier.
  for (const int32_t node : result.path) {
    if (node >= 0 && node < round_tree_->draft_nodes()) continue;
    return absl::InternalError(absl::StrCat(
        "a round accepted node ", node, " of ", round_tree_->draft_nodes()));
  }
  return CheckCommitted(result.tokens);
}

absl::Status DecodeLoop::CheckCommitted(
    const std::vector<SampledToken>& tokens) const {
  for (const SampledToken& token : tokens) {
    if (InVocabulary(token.token, target_.vocab_size)) continue;
    return absl::InternalError(absl::StrCat("the verifier committed token ",
                                            token.token, " of a vocabulary of ",
                                            target_.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status DecodeLoop::OnRound(const RoundResult& result,
                                 GenerationDelta& delta) {
  FORETOKEN_RETURN_IF_ERROR(CheckResult(result));
  report_ = RoundReport();
  report_.length = static_cast<int64_t>(text_.size());
  report_.verify_time = clock_() - round_start_;
  std::vector<int32_t> owners;
  std::vector<DrafterId> drafters;
  for (const int32_t node : result.path) {
    // Taken down now: drafting_ replaces the tree while the tokens are taken
    // and shown.
    owners.push_back(round_tree_->credited()[node]);
    drafters.push_back(DrafterOf(node));
  }
  drafters.push_back(DrafterId::kTarget);
  const int64_t shown = summary_.completion_tokens;
  const int64_t taken =
      TakeTokens(result.tokens, drafters, result.finish, delta);
  // Tokens shown and taken differ: a stop string holds some back, and shows
  // those of earlier rounds.
  report_.shown = summary_.completion_tokens - shown;
  Count(result, taken, owners);
  AskDrafters(taken, &result, result.arm);
  // While the drafters work.
  if (request_.want_round_trees) delta.round_tree = TreeOf(result, taken);
  round_tree_ = nullptr;
  return absl::OkStatus();
}

DrafterId DecodeLoop::DrafterOf(int32_t node) const {
  const DrafterId part = round_tree_->parts()[node];
  return part == DrafterId::kTarget
             ? drafting_.id(round_tree_->credited()[node])
             : part;
}

RoundTree DecodeLoop::TreeOf(const RoundResult& result, int64_t taken) const {
  const size_t drafts = static_cast<size_t>(round_tree_->draft_nodes());
  const auto copy = [drafts](const auto& from, auto& to) {
    to.assign(from.begin(), from.begin() + drafts);
  };
  RoundTree tree;
  copy(round_tree_->tokens(), tree.nodes.tokens);
  copy(round_tree_->parents(), tree.nodes.parents);
  copy(round_tree_->probs(), tree.nodes.probs);
  tree.nodes.parts.reserve(drafts);
  for (int32_t node = 0; node < round_tree_->draft_nodes(); ++node) {
    tree.nodes.parts.push_back(DrafterOf(node));
  }
  tree.accepted.resize(drafts);
  // As Count does: the last token taken counts as the target's own.
  for (int64_t i = 0; i + 1 < taken; ++i) {
    tree.accepted[result.path[i]] = true;
  }
  const auto committed = absl::MakeConstSpan(text_).last(taken);
  tree.committed.assign(committed.begin(), committed.end());
  return tree;
}

void DecodeLoop::Count(const RoundResult& result, int64_t taken,
                       const std::vector<int32_t>& owners) {
  report_.draft_nodes = round_tree_->draft_nodes();
  report_.probe_rows = round_tree_->size() - round_tree_->draft_nodes();
  // A stop string may cut the round. The last token taken then stands for the
  // bonus token, so that accept length is taken tokens in a round.
  report_.accepted = taken - 1;
  report_.path_drafters.assign(owners.begin(), owners.begin() + taken - 1);
  report_.draft_time = drafting_.draft_time();
  report_.sources = drafting_.report();
  report_.stats = result.stats;
  ++summary_.rounds;
  summary_.drafted += report_.draft_nodes;
  summary_.accepted += report_.accepted;
  summary_.draft_time += report_.draft_time;
  summary_.verify_time += report_.verify_time;
  for (size_t i = 0; i < report_.sources.size(); ++i) {
    DrafterCounts& counts = summary_.by_drafter[i];
    const SourceReport& source = report_.sources[i];
    counts.drafted += source.nodes;
    counts.rounds += source.outcome == DraftOutcome::kAnswered;
    counts.degraded += IsDegraded(source.outcome);
    counts.shortened += source.shortened;
  }
  for (const int32_t owner : report_.path_drafters) {
    ++summary_.by_drafter[owner].accepted;
  }
}

int64_t DecodeLoop::TakeTokens(const std::vector<SampledToken>& tokens,
                               const std::vector<DrafterId>& drafters,
                               FinishReason finish, GenerationDelta& delta) {
  // Invariant: text_ holds every token that was taken, pending_ those of them
  // that output_ still holds back, in order. A stop string that ends inside the
  // round drops the rest of its tokens: plain decoding would never have drawn
  // them.
  int64_t taken = 0;
  bool stopped = false;
  for (size_t i = 0; i < tokens.size() && !stopped; ++i) {
    text_.push_back(tokens[i].token);
    pending_.push_back({tokens[i], drafters[i]});
    ++taken;
    // An end token, which ended the session, has no text to show. A constraint
    // can end it with a token of the text.
    const bool ends = finish == FinishReason::kStop &&
                      i + 1 == tokens.size() && IsEnd(tokens[i].token);
    if (ends) {
      output_.PushSilent();
    } else {
      stopped = output_.Push(tokens[i].token);
    }
  }
  // Before the text is worked on: the time to the last token ends with its
  // arrival.
  summary_.decode_time = clock_() - first_token_;
  // Bytes held back for the rest of their character become text now, which may
  // complete a stop string.
  if (!stopped && finish != FinishReason::kNone) stopped = output_.Finish();
  Show(delta);
  if (stopped) {
    finish = FinishReason::kStop;
    summary_.stop_string = output_.stop_string();
  }
  if (finish != FinishReason::kNone) End(finish);
  return taken;
}

bool DecodeLoop::IsEnd(TokenId token) const {
  return std::binary_search(request_.sampling.end_tokens.begin(),
                            request_.sampling.end_tokens.end(), token);
}

void DecodeLoop::Show(GenerationDelta& delta) {
  delta.text += output_.TakeText();
  const int64_t count = output_.TakeTokens();
  for (int64_t i = 0; i < count; ++i) {
    // Tokens are released in order with their text, so the first `count` of
    // pending_ are those.
    Pending& pending = pending_[i];
    delta.token_ids.push_back(pending.token.token);
    delta.drafters.push_back(pending.drafter);
    if (request_.sampling.logprobs >= 0) {
      delta.logprobs.push_back(std::move(pending.token));
    }
  }
  pending_.erase(pending_.begin(), pending_.begin() + count);
  summary_.completion_tokens += count;
}

void DecodeLoop::End(FinishReason finish) {
  pending_.clear();  // what a stop string cut off
  summary_.finish = finish;
  // The first token came with prefill, whose time decode_time leaves out.
  summary_.decoded_tokens =
      static_cast<int64_t>(text_.size()) - summary_.prompt_tokens - 1;
}

GenerationSummary DecodeLoop::TakeSummary() {
  // Tokens beyond the prompt were delivered; the summary returns the prompt
  // alone, in the memory that text_ had.
  text_.resize(static_cast<size_t>(summary_.prompt_tokens));
  summary_.prompt = std::move(text_);
  return std::move(summary_);
}

absl::Status Generate(
    DecodeLoop& loop, Verifier& verifier,
    absl::FunctionRef<absl::Status(const GenerationDelta&)> on_step) {
  GenerationDelta delta;
  FORETOKEN_ASSIGN_OR_RETURN(const PrefillResult prefill,
                             verifier.Open(loop.OpenRequest(), loop.text()));
  FORETOKEN_RETURN_IF_ERROR(loop.OnPrefill(prefill, delta));
  // Each step is delivered before the next round is asked for, so that a slow
  // client slows its own request alone.
  FORETOKEN_RETURN_IF_ERROR(on_step(delta));
  while (!loop.done()) {
    FORETOKEN_ASSIGN_OR_RETURN(const RoundResult round,
                               verifier.Round(loop.NextRound(), loop.text()));
    delta = GenerationDelta();
    FORETOKEN_RETURN_IF_ERROR(loop.OnRound(round, delta));
    FORETOKEN_RETURN_IF_ERROR(on_step(delta));
  }
  verifier.Close();
  return absl::OkStatus();
}

}  // namespace foretoken::orchestrator
