#include "common/rpc/convert.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::rpc {
namespace {

// Maximum silence limit that is taken from a verifier.
constexpr double kMaxSilenceMs = 15 * 60 * 1e3;

template <typename Field>
void AddLogprobs(const std::vector<TokenLogprob>& tokens, Field* field) {
  for (const TokenLogprob& token : tokens) {
    v1::TokenLogprob* entry = field->Add();
    entry->set_token(token.token);
    entry->set_logprob(token.logprob);
  }
}

template <typename Field>
std::vector<TokenLogprob> ReadLogprobs(const Field& field) {
  std::vector<TokenLogprob> tokens;
  for (const v1::TokenLogprob& entry : field) {
    tokens.push_back({entry.token(), entry.logprob()});
  }
  return tokens;
}

double Milliseconds(absl::Duration d) { return absl::ToDoubleMilliseconds(d); }

// Committed tokens, with their logprobs if the message has them. A round
// commits at most one path through the tree and the bonus token, a prefill one.
absl::StatusOr<std::vector<SampledToken>> SampledTokens(
    const google::protobuf::RepeatedField<int32_t>& ids,
    const google::protobuf::RepeatedPtrField<v1::TokenLogprobs>& logprobs) {
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("token_ids", ids.size(), kMaxTreeNodes + 1));
  if (!logprobs.empty() && logprobs.size() != ids.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "logprobs: ", logprobs.size(), " entries, want 0 or ", ids.size()));
  }
  std::vector<SampledToken> tokens(ids.size());
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("token_ids[", i, "] is ", ids[i]));
    }
    if (!logprobs.empty()) {
      FORETOKEN_RETURN_IF_ERROR(
          CheckSize("logprobs.top", logprobs[i].top_size(), kMaxLogprobs));
      tokens[i] = FromProto(logprobs[i]);
    }
    tokens[i].token = ids[i];
  }
  return tokens;
}

template <typename Proto>
void AddTokens(const std::vector<SampledToken>& tokens, bool with_logprobs,
               Proto* proto) {
  for (const SampledToken& token : tokens) {
    proto->add_token_ids(token.token);
    if (with_logprobs) ToProto(token, proto->add_logprobs());
  }
}

}  // namespace

// Every list of a message is checked before it is copied: the size of a message
// bounds its bytes, not the work or memory that follows.
absl::Status CheckSize(absl::string_view field, int64_t size, int64_t limit) {
  if (size <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", size, " entries, want at most ", limit));
}

absl::Status CheckFingerprint(absl::string_view fingerprint) {
  if (fingerprint.size() <= kMaxFingerprintBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("numerics_fingerprint: ", fingerprint.size(),
                   " bytes, want at most ", kMaxFingerprintBytes));
}

void ToProto(const SamplingParams& params, v1::SamplingParams* proto) {
  proto->set_temperature(params.temperature);
  proto->set_top_k(params.top_k);
  proto->set_top_p(params.top_p);
  proto->set_min_p(params.min_p);
  proto->set_repetition_penalty(params.repetition_penalty);
  proto->set_presence_penalty(params.presence_penalty);
  proto->set_frequency_penalty(params.frequency_penalty);
  for (const auto& [token, bias] : params.logit_bias) {
    (*proto->mutable_logit_bias())[token] = bias;
  }
  proto->set_seed(params.seed);
  proto->set_min_tokens(params.min_tokens);
  // -1, for no logprobs, is an absent field.
  if (params.logprobs >= 0) proto->set_logprobs(params.logprobs);
}

absl::StatusOr<SamplingParams> FromProto(const v1::SamplingParams& proto) {
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("logit_bias", static_cast<int64_t>(proto.logit_bias_size()),
                kMaxTokenListSize));
  SamplingParams params;
  params.temperature = proto.temperature();
  params.top_k = proto.top_k();
  // Parameters whose neutral value is not 0 are optional in the message; for
  // the others, an absent field reads as neutral.
  if (proto.has_top_p()) params.top_p = proto.top_p();
  params.min_p = proto.min_p();
  if (proto.has_repetition_penalty()) {
    params.repetition_penalty = proto.repetition_penalty();
  }
  params.presence_penalty = proto.presence_penalty();
  params.frequency_penalty = proto.frequency_penalty();
  for (const auto& [token, bias] : proto.logit_bias()) {
    params.logit_bias.emplace_back(token, bias);
  }
  if (proto.has_seed()) params.seed = proto.seed();
  params.min_tokens = proto.min_tokens();
  if (proto.has_logprobs()) {
    // The struct's -1 means off; in a message, off is the absent field.
    if (proto.logprobs() < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "logprobs: ", proto.logprobs(), ", want 0..", kMaxLogprobs));
    }
    params.logprobs = proto.logprobs();
  }
  return params;
}

void ToProto(const TokenTree& tree, v1::TokenTree* proto) {
  Append(tree.tokens(), proto->mutable_tokens());
  Append(tree.parents(), proto->mutable_parents());
  if (tree.draft_nodes() == tree.size()) return;
  for (int32_t node = 0; node < tree.size(); ++node) {
    if (tree.is_probe(node)) proto->add_probes(node);
  }
}

absl::StatusOr<TokenTree> FromProto(const v1::TokenTree& proto) {
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("tree.tokens", proto.tokens_size(), kMaxTreeNodes));
  return TokenTree::Create(Values(proto.tokens()), Values(proto.parents()),
                           proto.probes());
}

// The proto enums reserve 0 for UNSPECIFIED, which is -1 here: kTarget and, for
// arms, kNone.
v1::Drafter ToProto(DrafterId id) {
  return static_cast<v1::Drafter>(static_cast<int>(id) + 1);
}

// A newer peer may send a drafter that this build does not know. Proto3 enums
// keep such numbers, and a cast would be out of range.
DrafterId FromProto(v1::Drafter drafter) {
  return v1::Drafter_IsValid(drafter)
             ? static_cast<DrafterId>(static_cast<int>(drafter) - 1)
             : DrafterId::kTarget;
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kNone:
      break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

FinishReason FromProto(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_STOP) return FinishReason::kStop;
  if (reason == v1::FINISH_REASON_LENGTH) return FinishReason::kLength;
  return FinishReason::kNone;
}

v1::Pooling ToProto(Pooling pooling) {
  return static_cast<v1::Pooling>(static_cast<int>(pooling));
}

absl::StatusOr<Pooling> FromProto(v1::Pooling pooling) {
  if (v1::Pooling_IsValid(pooling)) {
    return static_cast<Pooling>(static_cast<int>(pooling));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("pooling: ", static_cast<int>(pooling), " is not known"));
}

v1::DraftArm ToProto(DraftArm arm) {
  return static_cast<v1::DraftArm>(static_cast<int>(arm) + 1);
}

DraftArm FromProto(v1::DraftArm arm) {
  return v1::DraftArm_IsValid(arm)
             ? static_cast<DraftArm>(static_cast<int>(arm) - 1)
             : DraftArm::kNone;
}

void ToProto(const SessionRequest& request, v1::OpenSession* proto) {
  // Deadline and traceparent travel with the call itself.
  Append(request.tokens, proto->mutable_token_ids());
  proto->set_prompt_length(static_cast<int32_t>(request.prompt_length));
  ToProto(request.sampling, proto->mutable_sampling());
  Append(request.stop_tokens, proto->mutable_stop_tokens());
  Append(request.sampling.end_tokens, proto->mutable_end_tokens());
  proto->set_max_length(static_cast<int32_t>(request.max_length));
  proto->set_cache_scope(request.cache_scope);
  proto->set_request_id(request.request_id);
  proto->set_want_row_tokens(request.want_row_tokens);
  proto->set_numerics_fingerprint(request.numerics_fingerprint);
  proto->set_caller(request.caller);
  proto->set_weight(request.weight);
  proto->set_pooling(ToProto(request.pooling));
  if (!request.constraint.empty()) {
    ToProto(request.constraint, proto->mutable_constraint());
    proto->set_grammar_version(kGrammarVersion);
  }
}

absl::StatusOr<SessionRequest> FromProto(const v1::OpenSession& proto) {
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("token_ids", proto.token_ids_size(), kMaxTokensPerMessage));
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("stop_tokens", proto.stop_tokens_size(), kMaxTokenListSize));
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("end_tokens", proto.end_tokens_size(), kMaxTokenListSize));
  FORETOKEN_RETURN_IF_ERROR(CheckRequestId(proto.request_id()));
  FORETOKEN_RETURN_IF_ERROR(CheckCacheScope(proto.cache_scope()));
  FORETOKEN_RETURN_IF_ERROR(CheckSize(
      "caller", static_cast<int64_t>(proto.caller().size()), kMaxCallerBytes));
  FORETOKEN_RETURN_IF_ERROR(CheckFingerprint(proto.numerics_fingerprint()));
  SessionRequest request;
  FORETOKEN_ASSIGN_OR_RETURN(request.sampling, FromProto(proto.sampling()));
  request.cache_scope = proto.cache_scope();
  request.tokens = Values(proto.token_ids());
  request.prompt_length = proto.prompt_length();
  request.max_length = proto.max_length();
  request.sampling.end_tokens = Values(proto.end_tokens());
  request.stop_tokens = Values(proto.stop_tokens());
  request.request_id = proto.request_id();
  request.want_row_tokens = proto.want_row_tokens();
  request.numerics_fingerprint = proto.numerics_fingerprint();
  request.caller = proto.caller();
  // A caller without a weight sends none, which reads as 0.
  if (proto.weight() != 0) request.weight = proto.weight();
  FORETOKEN_ASSIGN_OR_RETURN(request.pooling, FromProto(proto.pooling()));
  if (proto.has_constraint()) {
    if (proto.grammar_version() != kGrammarVersion) {
      return absl::FailedPreconditionError(absl::StrCat(
          "constraint: its sender has version ", proto.grammar_version(),
          " of the grammar engine, this verifier has version ",
          kGrammarVersion));
    }
    FORETOKEN_ASSIGN_OR_RETURN(request.constraint,
                               FromProto(proto.constraint()));
  }
  return request;
}

// An empty tree is left out: a round of plain decoding.
void ToProto(const RoundRequest& request, v1::Round* proto) {
  proto->set_committed_length(request.length);
  if (!request.tree.empty()) {
    ToProto(request.tree, proto->mutable_tree());
  }
  proto->set_top_candidates(request.candidates);
  proto->set_arm(ToProto(request.arm));
}

absl::StatusOr<RoundRequest> FromProto(const v1::Round& proto) {
  RoundRequest request;
  FORETOKEN_ASSIGN_OR_RETURN(request.tree, FromProto(proto.tree()));
  request.length = proto.committed_length();
  request.candidates = proto.top_candidates();
  if (request.candidates < 0 || request.candidates > kMaxRowCandidates) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_candidates: ", request.candidates, ", want 0..",
                     kMaxRowCandidates));
  }
  request.arm = FromProto(proto.arm());
  return request;
}

void ToProto(const SampledToken& token, v1::TokenLogprobs* proto) {
  proto->set_logprob(token.logprob);
  AddLogprobs(token.top_logprobs, proto->mutable_top());
}

SampledToken FromProto(const v1::TokenLogprobs& proto) {
  SampledToken token;
  token.logprob = proto.logprob();
  token.top_logprobs = ReadLogprobs(proto.top());
  return token;
}

void ToProto(const PrefillResult& result, bool with_logprobs,
             v1::Prefilled* proto) {
  proto->set_committed_length(result.length);
  AddTokens(result.tokens, with_logprobs, proto);
  proto->set_reused_tokens(static_cast<int32_t>(result.reused_tokens));
  proto->set_finish_reason(ToProto(result.finish));
  Append(result.embedding, proto->mutable_embedding());
  proto->set_arm(ToProto(result.arm));
}

absl::StatusOr<PrefillResult> FromProto(const v1::Prefilled& proto) {
  PrefillResult result;
  FORETOKEN_ASSIGN_OR_RETURN(
      result.tokens, SampledTokens(proto.token_ids(), proto.logprobs()));
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("embedding", proto.embedding_size(), kMaxEmbeddingSize));
  result.embedding = Values(proto.embedding());
  result.length = proto.committed_length();
  result.reused_tokens = proto.reused_tokens();
  result.finish = FromProto(proto.finish_reason());
  result.arm = FromProto(proto.arm());
  return result;
}

void ToProto(const RoundResult& result, bool with_logprobs, bool with_rows,
             v1::RoundResult* proto) {
  proto->set_committed_length(result.length);
  AddTokens(result.tokens, with_logprobs, proto);
  Append(result.path, proto->mutable_path());
  if (with_rows) {
    Append(result.row_tokens, proto->mutable_row_tokens());
  }
  for (const auto& candidates : result.row_candidates) {
    AddLogprobs(candidates, proto->add_row_candidates()->mutable_candidates());
  }
  proto->set_finish_reason(ToProto(result.finish));
  proto->set_arm(ToProto(result.arm));
  v1::RoundStats* stats = proto->mutable_stats();
  stats->set_draft_rows(result.stats.draft_rows);
  stats->set_probe_rows(result.stats.probe_rows);
  stats->set_dropped_nodes(result.stats.dropped_nodes);
  stats->set_accepted(result.stats.accepted);
  stats->set_pass_rows(result.stats.pass_rows);
  stats->set_pass_sessions(result.stats.pass_sessions);
  stats->set_queue_ms(Milliseconds(result.stats.queue_time));
  stats->set_pass_ms(Milliseconds(result.stats.pass_time));
}

absl::StatusOr<RoundResult> FromProto(const v1::RoundResult& proto,
                                      int32_t tree_size) {
  RoundResult result;
  FORETOKEN_ASSIGN_OR_RETURN(
      result.tokens, SampledTokens(proto.token_ids(), proto.logprobs()));
  FORETOKEN_RETURN_IF_ERROR(CheckSize("path", proto.path_size(), tree_size));
  // Row 0 is the last committed token, row i + 1 is node i.
  if (proto.row_tokens_size() != 0 &&
      proto.row_tokens_size() != tree_size + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_tokens: ", proto.row_tokens_size(),
                     " entries, want 0 or ", tree_size + 1));
  }
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("row_candidates", proto.row_candidates_size(), tree_size + 1));
  result.length = proto.committed_length();
  // The path indexes the drafted tree later: check it here.
  for (const int32_t node : proto.path()) {
    if (node < 0 || node >= tree_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("path: node ", node, ", want 0..", tree_size - 1));
    }
    result.path.push_back(node);
  }
  result.row_tokens = Values(proto.row_tokens());
  for (const v1::RowCandidates& row : proto.row_candidates()) {
    FORETOKEN_RETURN_IF_ERROR(CheckSize(
        "row_candidates.candidates", row.candidates_size(), kMaxRowCandidates));
    result.row_candidates.push_back(ReadLogprobs(row.candidates()));
  }
  result.finish = FromProto(proto.finish_reason());
  result.arm = FromProto(proto.arm());
  const v1::RoundStats& stats = proto.stats();
  result.stats.draft_rows = stats.draft_rows();
  result.stats.probe_rows = stats.probe_rows();
  result.stats.dropped_nodes = stats.dropped_nodes();
  result.stats.accepted = stats.accepted();
  result.stats.pass_rows = stats.pass_rows();
  result.stats.pass_sessions = stats.pass_sessions();
  result.stats.queue_time = absl::Milliseconds(stats.queue_ms());
  result.stats.pass_time = absl::Milliseconds(stats.pass_ms());
  return result;
}

void ToProto(const VerifierInfo& info, v1::GetVerifierInfoResponse* proto) {
  proto->set_numerics_fingerprint(info.numerics_fingerprint);
  proto->set_vocab_size(info.vocab_size);
  proto->set_max_positions(info.max_positions);
  proto->set_max_tree_nodes(info.max_tree_nodes);
  proto->set_max_rows_per_session(info.max_rows_per_session);
  proto->set_sessions(info.sessions);
  proto->set_kv_pages_total(info.kv_pages_total);
  proto->set_kv_pages_free(info.kv_pages_free);
  for (const auto& [rows, milliseconds] : info.pass_costs) {
    v1::PassCost* cost = proto->add_pass_costs();
    cost->set_rows(rows);
    cost->set_milliseconds(milliseconds);
  }
  proto->set_model(info.model);
  proto->set_tokenizer_fingerprint(info.tokenizer_fingerprint);
  Append(info.end_tokens, proto->mutable_end_tokens());
  if (info.passes.has_value()) proto->set_passes(*info.passes);
  proto->set_silence_limit_ms(absl::ToDoubleMilliseconds(info.silence_limit));
  proto->set_grammar_version(info.grammar_version);
  proto->set_embedding_size(info.embedding_size);
  proto->set_model_pooling(ToProto(info.model_pooling));
}

VerifierInfo FromProto(const v1::GetVerifierInfoResponse& proto) {
  VerifierInfo info;
  info.numerics_fingerprint = proto.numerics_fingerprint();
  info.vocab_size = proto.vocab_size();
  info.max_positions = proto.max_positions();
  info.max_tree_nodes = proto.max_tree_nodes();
  info.max_rows_per_session = proto.max_rows_per_session();
  info.sessions = proto.sessions();
  info.kv_pages_total = proto.kv_pages_total();
  info.kv_pages_free = proto.kv_pages_free();
  for (const v1::PassCost& cost : proto.pass_costs()) {
    info.pass_costs.emplace_back(cost.rows(), cost.milliseconds());
  }
  info.model = proto.model();
  info.tokenizer_fingerprint = proto.tokenizer_fingerprint();
  info.end_tokens = Values(proto.end_tokens());
  if (proto.has_passes()) info.passes = proto.passes();
  // Cap the announced limit, so that a session leaves a silent verifier after
  // some time whatever it announces. NaN compares false and means none.
  info.silence_limit = absl::ZeroDuration();
  if (proto.silence_limit_ms() > 0) {
    info.silence_limit = absl::Milliseconds(
        std::min(proto.silence_limit_ms(), kMaxSilenceMs));
  }
  info.grammar_version = proto.grammar_version();
  info.embedding_size =
      std::clamp(proto.embedding_size(), 0, kMaxEmbeddingSize);
  // One that a newer version knows is none of those that requests may leave
  // out.
  info.model_pooling =
      FromProto(proto.model_pooling()).value_or(Pooling::kNone);
  return info;
}

}  // namespace foretoken::rpc
