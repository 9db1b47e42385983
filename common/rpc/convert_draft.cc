#include "common/rpc/convert_draft.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::rpc {
namespace {

using TokenField = google::protobuf::RepeatedField<int32_t>;

// Reads at most `limit` tokens, each at least `lowest`: 0 for ids, -1 where a
// missing token is allowed.
absl::StatusOr<std::vector<TokenId>> Tokens(absl::string_view field,
                                            const TokenField& proto,
                                            int64_t limit, TokenId lowest) {
  FORETOKEN_RETURN_IF_ERROR(CheckSize(field, proto.size(), limit));
  for (int i = 0; i < proto.size(); ++i) {
    if (proto[i] >= lowest) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        field, "[", i, "]: ", proto[i], ", want at least ", lowest));
  }
  return Values(proto);
}

// Checks the accepted path: every node is a child of the one before, the first
// a child of the root (-1).
absl::Status CheckPath(const TokenTree& tree, const TokenField& path) {
  int32_t parent = -1;
  for (const int32_t node : path) {
    if (node < 0 || node >= tree.size() || tree.parents()[node] != parent) {
      return absl::InvalidArgumentError(
          absl::StrCat("verified.path: node ", node, " after ", parent,
                       ", want one of its children"));
    }
    parent = node;
  }
  return absl::OkStatus();
}

// The lists are flat, [rows, width] in row order, so their sizes must be exact:
// a shift would attribute candidates to other rows.
absl::StatusOr<CandidateRows> ReadCandidates(const v1::VerifiedTree& proto,
                                             int rows) {
  CandidateRows candidates;
  candidates.width = proto.candidates_per_row();
  if (candidates.width < 0 || candidates.width > kMaxRowCandidates) {
    return absl::InvalidArgumentError(
        absl::StrCat("verified.candidates_per_row: ", candidates.width,
                     ", want 0..", kMaxRowCandidates));
  }
  const int64_t want = int64_t{rows} * candidates.width;
  // Costs are one byte each, in the order of the tokens, row by row.
  const std::string& costs = proto.candidate_costs();
  if (proto.candidates_size() != want ||
      static_cast<int64_t>(costs.size()) != want) {
    return absl::InvalidArgumentError(
        absl::StrCat("verified.candidates: ", proto.candidates_size(),
                     " tokens and ", costs.size(), " costs, want ", want));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      candidates.tokens,
      Tokens("verified.candidates", proto.candidates(), want, -1));
  candidates.costs.assign(costs.begin(), costs.end());
  return candidates;
}

absl::StatusOr<VerifiedTree> ReadVerified(const v1::VerifiedTree& proto) {
  VerifiedTree verified;
  FORETOKEN_ASSIGN_OR_RETURN(verified.tree, FromProto(proto.tree()));
  const int rows = verified.tree.size() + 1;
  // The first round after an open has verified no tree and may leave out the
  // row of the context.
  if (proto.row_tokens_size() != rows &&
      !(verified.tree.empty() && proto.row_tokens().empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("verified.row_tokens: ", proto.row_tokens_size(),
                     " entries, want ", rows));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      verified.row_tokens,
      Tokens("verified.row_tokens", proto.row_tokens(), kMaxTreeNodes + 1, -1));
  FORETOKEN_RETURN_IF_ERROR(CheckPath(verified.tree, proto.path()));
  verified.path = Values(proto.path());
  FORETOKEN_ASSIGN_OR_RETURN(verified.candidates, ReadCandidates(proto, rows));
  return verified;
}

}  // namespace

absl::Status CheckFingerprint(const std::string& fingerprint) {
  if (fingerprint.empty() || fingerprint.size() == kFingerprintBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer_fingerprint: ", fingerprint.size(),
                   " bytes, want 0 or ", kFingerprintBytes));
}

void ToProto(const std::vector<Phrase>& phrases, PhrasesProto* proto) {
  for (const Phrase& phrase : phrases) {
    Append(phrase, proto->Add()->mutable_tokens());
  }
}

absl::StatusOr<std::vector<Phrase>> FromProto(const PhrasesProto& proto) {
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("phrases", proto.size(), kMaxPhrasesPerMessage));
  std::vector<Phrase> phrases;
  phrases.reserve(static_cast<size_t>(proto.size()));
  for (const v1::Phrase& phrase : proto) {
    FORETOKEN_ASSIGN_OR_RETURN(
        Phrase tokens,
        Tokens("phrases.tokens", phrase.tokens(), kMaxPhraseTokens, 0));
    if (tokens.empty()) {
      return absl::InvalidArgumentError("phrases.tokens: want its key token");
    }
    phrases.push_back(std::move(tokens));
  }
  return phrases;
}

absl::Status ToProto(const DraftOpen& open, v1::OpenDrafting* proto) {
  FORETOKEN_RETURN_IF_ERROR(ToProto(open.mode, proto->mutable_speculation()));
  Append(open.tokens, proto->mutable_token_ids());
  proto->set_prompt_length(static_cast<int32_t>(open.prompt_length));
  proto->set_cache_scope(open.cache_scope);
  proto->set_request_id(open.request_id);
  proto->set_tokenizer_fingerprint(open.tokenizer_fingerprint);
  ToProto(open.sampling, proto->mutable_sampling());
  Append(open.sampling.end_tokens, proto->mutable_end_tokens());
  ToProto(open.phrases, proto->mutable_phrases());
  return absl::OkStatus();
}

absl::StatusOr<DraftOpen> FromProto(const v1::OpenDrafting& proto) {
  FORETOKEN_RETURN_IF_ERROR(CheckRequestId(proto.request_id()));
  FORETOKEN_RETURN_IF_ERROR(CheckCacheScope(proto.cache_scope()));
  FORETOKEN_RETURN_IF_ERROR(CheckFingerprint(proto.tokenizer_fingerprint()));
  DraftOpen open;
  FORETOKEN_ASSIGN_OR_RETURN(open.tokens, Tokens("token_ids", proto.token_ids(),
                                                 kMaxTokensPerMessage, 0));
  open.prompt_length = proto.prompt_length();
  if (open.prompt_length < 1 ||
      open.prompt_length > static_cast<int64_t>(open.tokens.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_length: ", open.prompt_length, ", want 1..",
                     open.tokens.size(), " (token_ids)"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::optional<Mode> mode,
                             FromProto(proto.speculation()));
  if (!mode.has_value()) {
    return absl::InvalidArgumentError("speculation: want a mode");
  }
  open.mode = *std::move(mode);
  FORETOKEN_ASSIGN_OR_RETURN(open.sampling, FromProto(proto.sampling()));
  FORETOKEN_ASSIGN_OR_RETURN(
      open.sampling.end_tokens,
      Tokens("end_tokens", proto.end_tokens(), kMaxTokenListSize, 0));
  FORETOKEN_ASSIGN_OR_RETURN(open.phrases, FromProto(proto.phrases()));
  open.cache_scope = proto.cache_scope();
  open.request_id = proto.request_id();
  open.tokenizer_fingerprint = proto.tokenizer_fingerprint();
  return open;
}

void ToProto(const DraftTree& tree, v1::TokenTree* proto) {
  Append(tree.tokens, proto->mutable_tokens());
  Append(tree.parents, proto->mutable_parents());
  Append(tree.probs, proto->mutable_probabilities());
  for (const DrafterId part : tree.parts) {
    // Bit d is set if drafter d proposed the node.
    proto->add_proposers(1u << ToProto(part));
  }
}

void ToProto(const DraftRound& round, v1::DraftRound* proto) {
  proto->set_committed_length(round.length);
  Append(round.committed, proto->mutable_committed());
  const VerifiedTree& from = round.verified;
  if (!from.row_tokens.empty()) {
    v1::VerifiedTree* verified = proto->mutable_verified();
    // A drafter need not know which rows were probes.
    v1::TokenTree* tree = verified->mutable_tree();
    Append(from.tree.tokens(), tree->mutable_tokens());
    Append(from.tree.parents(), tree->mutable_parents());
    Append(from.row_tokens, verified->mutable_row_tokens());
    Append(from.path, verified->mutable_path());
    verified->set_candidates_per_row(from.candidates.width);
    Append(from.candidates.tokens, verified->mutable_candidates());
    verified->mutable_candidate_costs()->assign(from.candidates.costs.begin(),
                                                from.candidates.costs.end());
  }
  proto->set_max_nodes(round.max_nodes);
  // An absent budget means no limit, so a budget that has run out is sent as
  // the smallest positive one.
  if (round.budget != absl::InfiniteDuration()) {
    proto->set_budget_ms(absl::ToDoubleMilliseconds(
        std::max(round.budget, absl::Microseconds(1))));
  }
  if (!round.phrases.empty()) {
    ToProto(round.phrases, proto->mutable_pool()->mutable_inserted());
  }
  if (round.hints.size() > 0) ToProto(round.hints, proto->mutable_hints());
  proto->set_token_ms(absl::ToDoubleMilliseconds(round.token_time));
  proto->mutable_row_ms()->Assign(round.row_ms.begin(), round.row_ms.end());
}

absl::StatusOr<DraftRound> FromProto(const v1::DraftRound& proto) {
  DraftRound round;
  round.length = proto.committed_length();
  FORETOKEN_ASSIGN_OR_RETURN(
      round.committed,
      Tokens("committed", proto.committed(), kMaxTokensPerMessage, 0));
  FORETOKEN_ASSIGN_OR_RETURN(round.verified, ReadVerified(proto.verified()));
  round.max_nodes = proto.max_nodes();
  if (round.max_nodes < 0 || round.max_nodes > kMaxTreeNodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_nodes: ", round.max_nodes, ", want 0..", kMaxTreeNodes));
  }
  const double budget_ms = proto.budget_ms();
  // Numbers become durations and array sums in the drafters: refuse NaN and
  // infinity at the border.
  if (!std::isfinite(budget_ms) || budget_ms < 0) {
    return absl::InvalidArgumentError("budget_ms: want at least 0");
  }
  if (budget_ms > 0) round.budget = absl::Milliseconds(budget_ms);
  FORETOKEN_ASSIGN_OR_RETURN(round.phrases, FromProto(proto.pool().inserted()));
  FORETOKEN_ASSIGN_OR_RETURN(round.hints, ReadDraft(proto.hints()));
  const double token_ms = proto.token_ms();
  if (!std::isfinite(token_ms) || token_ms < 0) {
    return absl::InvalidArgumentError("token_ms: want at least 0");
  }
  round.token_time = absl::Milliseconds(token_ms);
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("row_ms", proto.row_ms_size(), kMaxDraftNodes));
  for (const float row_ms : proto.row_ms()) {
    if (std::isfinite(row_ms) && row_ms >= 0) continue;
    return absl::InvalidArgumentError("row_ms: want at least 0");
  }
  round.row_ms.assign(proto.row_ms().begin(), proto.row_ms().end());
  return round;
}

void ToProto(const DraftAnswer& answer, v1::DraftResponse* proto) {
  proto->set_committed_length(answer.length);
  ToProto(answer.tree, proto->mutable_tree());
  if (!answer.phrases.empty()) {
    ToProto(answer.phrases, proto->mutable_pool()->mutable_inserted());
  }
  proto->set_draft_ms(absl::ToDoubleMilliseconds(answer.draft_time));
  proto->set_shortened(answer.shortened);
}

absl::StatusOr<DraftTree> ReadDraft(const v1::TokenTree& proto) {
  FORETOKEN_RETURN_IF_ERROR(
      CheckSize("tree.tokens", proto.tokens_size(), kMaxTreeNodes));
  FORETOKEN_RETURN_IF_ERROR(
      TokenTree::Check(proto.tokens(), proto.parents(), proto.probes()));
  DraftTree draft;
  draft.tokens = Values(proto.tokens());
  draft.parents = Values(proto.parents());
  const auto& probabilities = proto.probabilities();
  const auto& proposers = proto.proposers();
  for (const auto& [field, size] :
       {std::pair("tree.probabilities", probabilities.size()),
        std::pair("tree.proposers", proposers.size())}) {
    if (size == 0 || size == draft.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", size, " entries, want 0 or ", draft.size()));
  }
  for (const float probability : probabilities) {
    // Negated, so that NaN is refused, too.
    if (!(probability >= 0.0f && probability <= 1.0f)) {
      return absl::InvalidArgumentError("tree.probabilities: want 0..1");
    }
  }
  for (const uint32_t bits : proposers) {
    draft.parts.push_back(
        FromProto(static_cast<v1::Drafter>(std::bit_width(bits) - 1)));
  }
  draft.probs.assign(probabilities.begin(), probabilities.end());
  // Nodes of a message without probabilities count as 0.
  draft.probs.resize(draft.tokens.size());
  return draft;
}

absl::StatusOr<DraftAnswer> FromProto(const v1::DraftResponse& proto) {
  DraftAnswer answer;
  answer.length = proto.committed_length();
  FORETOKEN_ASSIGN_OR_RETURN(answer.tree, ReadDraft(proto.tree()));
  FORETOKEN_ASSIGN_OR_RETURN(answer.phrases,
                             FromProto(proto.pool().inserted()));
  // Only a statistic: a bad value is ignored rather than refused.
  if (std::isfinite(proto.draft_ms())) {
    answer.draft_time = absl::Milliseconds(std::max(proto.draft_ms(), 0.0));
  }
  answer.shortened = proto.shortened();
  return answer;
}

}  // namespace foretoken::rpc
