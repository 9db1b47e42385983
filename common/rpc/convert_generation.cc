#include "common/rpc/convert_generation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/text/stop_matcher.h"

namespace foretoken::rpc {
namespace {

void ToProto(const RoundTree& tree, v1::RoundTree& proto) {
  Append(tree.nodes.tokens, proto.mutable_tokens());
  Append(tree.nodes.parents, proto.mutable_parents());
  Append(tree.nodes.probs, proto.mutable_probabilities());
  proto.mutable_drafters()->Reserve(tree.nodes.size());
  for (const DrafterId drafter : tree.nodes.parts) {
    proto.add_drafters(rpc::ToProto(drafter));
  }
  for (int32_t node = 0; node < tree.nodes.size(); ++node) {
    if (tree.accepted[node]) proto.add_path(node);
  }
  Append(tree.committed, proto.mutable_committed());
}

// Display data that does not affect the output: tolerant of a bad message.
// Where the arrays differ in length, only the nodes that all of them have
// count; a parent that is not before its node becomes the root.
RoundTree FromProto(const v1::RoundTree& proto) {
  RoundTree tree;
  const int size =
      std::min({proto.tokens_size(), proto.parents_size(),
                proto.drafters_size(), proto.probabilities_size()});
  for (int i = 0; i < size; ++i) {
    const int32_t parent = proto.parents(i);
    tree.nodes.Add(proto.tokens(i),
                   parent < i ? std::max(parent, kRootParent) : kRootParent,
                   proto.probabilities(i));
    tree.nodes.parts.push_back(rpc::FromProto(proto.drafters(i)));
  }
  tree.accepted.resize(static_cast<size_t>(size));
  for (const int32_t node : proto.path()) {
    if (node >= 0 && node < size) tree.accepted[node] = true;
  }
  tree.committed = Values(proto.committed());
  return tree;
}

}  // namespace

absl::Status ToProto(const GenerationRequest& request,
                     v1::GenerateRequest* proto) {
  if (request.text.has_value()) {
    proto->set_text(*request.text);
  } else {
    Append(request.prompt, proto->mutable_token_ids()->mutable_ids());
  }
  ToProto(request.sampling, proto->mutable_sampling());
  // Without a seed the orchestrator draws one and reports it.
  if (!request.has_seed) proto->mutable_sampling()->clear_seed();
  if (request.mode.has_value()) {
    FORETOKEN_RETURN_IF_ERROR(
        ToProto(*request.mode, proto->mutable_speculation()));
  }
  if (request.max_tree_nodes.has_value()) {
    proto->mutable_speculation()->set_max_tree_nodes(*request.max_tree_nodes);
  }
  // A number that does not fit the field exceeds every model's context anyway.
  proto->set_max_tokens(static_cast<int32_t>(std::clamp<int64_t>(
      request.max_tokens, std::numeric_limits<int32_t>::min(),
      std::numeric_limits<int32_t>::max())));
  for (const std::string& stop : request.stop_strings) proto->add_stop(stop);
  Append(request.stop_token_ids, proto->mutable_stop_token_ids());
  proto->set_ignore_eos(request.ignore_eos);
  proto->set_cache_scope(request.cache_scope);
  proto->set_prefix_scope(request.prefix_scope);
  proto->set_request_id(request.request_id);
  proto->set_numerics_fingerprint(request.numerics_fingerprint);
  proto->set_want_round_trees(request.want_round_trees);
  proto->set_pooling(ToProto(request.pooling));
  if (!request.constraint.empty()) {
    ToProto(request.constraint, proto->mutable_constraint());
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerationRequest> FromProto(v1::GenerateRequest proto) {
  GenerationRequest request;
  FORETOKEN_ASSIGN_OR_RETURN(request.sampling, FromProto(proto.sampling()));
  FORETOKEN_ASSIGN_OR_RETURN(request.mode, FromProto(proto.speculation()));
  switch (proto.prompt_case()) {
    case v1::GenerateRequest::kText:
      request.text = std::move(*proto.mutable_text());
      break;
    case v1::GenerateRequest::kTokenIds:
      // Freed as soon as it is copied: a prompt may have megabytes.
      request.prompt = Values(proto.token_ids().ids());
      proto.clear_token_ids();
      break;
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return absl::InvalidArgumentError("prompt: want text or token_ids");
  }
  request.has_seed = proto.sampling().has_seed();
  if (proto.speculation().has_max_tree_nodes()) {
    request.max_tree_nodes = proto.speculation().max_tree_nodes();
  }
  if (proto.has_max_tokens()) request.max_tokens = proto.max_tokens();
  FORETOKEN_RETURN_IF_ERROR(CheckSize(
      "stop_token_ids", proto.stop_token_ids_size(), kMaxTokenListSize));
  FORETOKEN_RETURN_IF_ERROR(
      // Also checked when the StopMatcher is made; here, before the strings are
      // copied.
      CheckSize("stop", proto.stop_size(), StopMatcher::kMaxStrings));
  for (const std::string& stop : proto.stop()) {
    if (stop.size() > StopMatcher::kMaxStringBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop: a string of ", stop.size(),
                       " bytes, want at most ", StopMatcher::kMaxStringBytes));
    }
  }
  FORETOKEN_RETURN_IF_ERROR(CheckFingerprint(proto.numerics_fingerprint()));
  request.stop_token_ids = Values(proto.stop_token_ids());
  request.stop_strings.assign(proto.stop().begin(), proto.stop().end());
  request.ignore_eos = proto.ignore_eos();
  request.cache_scope = proto.cache_scope();
  request.prefix_scope = proto.prefix_scope();
  request.request_id = proto.request_id();
  request.numerics_fingerprint = proto.numerics_fingerprint();
  request.want_round_trees = proto.want_round_trees();
  FORETOKEN_ASSIGN_OR_RETURN(request.pooling, FromProto(proto.pooling()));
  if (proto.has_constraint()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        request.constraint, FromProto(std::move(*proto.mutable_constraint())));
  }
  return request;
}

void ToProto(const GenerationDelta& delta, v1::GenerateDelta* proto) {
  if (delta.start.has_value()) {
    v1::GenerateStart* start = proto->mutable_start();
    start->set_numerics_fingerprint(delta.start->numerics_fingerprint);
    start->set_seed(delta.start->seed);
    start->set_request_id(delta.start->request_id);
  }
  proto->set_text(delta.text);
  Append(delta.token_ids, proto->mutable_token_ids());
  for (const DrafterId drafter : delta.drafters) {
    proto->add_drafters(ToProto(drafter));
  }
  for (const SampledToken& token : delta.logprobs) {
    ToProto(token, proto->add_logprobs());
  }
  if (delta.round_tree.has_value()) {
    ToProto(*delta.round_tree, *proto->mutable_round_tree());
  }
}

GenerationDelta FromProto(const v1::GenerateDelta& proto) {
  GenerationDelta delta;
  if (proto.has_start()) {
    delta.start = {proto.start().numerics_fingerprint(), proto.start().seed(),
                   proto.start().request_id()};
  }
  delta.text = proto.text();
  delta.token_ids = Values(proto.token_ids());
  for (const int drafter : proto.drafters()) {
    delta.drafters.push_back(FromProto(static_cast<v1::Drafter>(drafter)));
  }
  for (int i = 0; i < proto.logprobs_size(); ++i) {
    // The message has no ids of its own for logprobs: entry i belongs to token
    // i.
    delta.logprobs.push_back(FromProto(proto.logprobs(i)));
    if (i < proto.token_ids_size()) {
      delta.logprobs.back().token = proto.token_ids(i);
    }
  }
  if (proto.has_round_tree()) delta.round_tree = FromProto(proto.round_tree());
  return delta;
}

void ToProto(const GenerationSummary& summary, v1::GenerateResult* proto) {
  proto->set_finish_reason(ToProto(summary.finish));
  v1::Usage* usage = proto->mutable_usage();
  usage->set_prompt_tokens(static_cast<int32_t>(summary.prompt_tokens));
  usage->set_completion_tokens(static_cast<int32_t>(summary.completion_tokens));
  usage->set_cached_prompt_tokens(static_cast<int32_t>(summary.reused_tokens));
  v1::SpeculationStats* stats = proto->mutable_speculation();
  stats->set_mode(summary.mode);
  stats->set_rounds(summary.rounds);
  stats->set_drafted_tokens(summary.drafted);
  stats->set_accepted_tokens(summary.accepted);
  stats->set_accept_length(summary.accept_length());
  for (const DrafterCounts& counts : summary.by_drafter) {
    v1::DrafterStats* by = stats->add_by_drafter();
    by->set_drafter(ToProto(counts.id));
    by->set_drafted_tokens(counts.drafted);
    by->set_accepted_tokens(counts.accepted);
    by->set_rounds(counts.rounds);
    by->set_degraded_rounds(counts.degraded);
    by->set_shortened_drafts(counts.shortened);
  }
  v1::Timing* timing = proto->mutable_timing();
  timing->set_time_to_first_token_ms(
      absl::ToDoubleMilliseconds(summary.time_to_first_token));
  timing->set_decode_tokens_per_s(summary.tokens_per_second());
  timing->set_draft_ms(absl::ToDoubleMilliseconds(summary.draft_time));
  timing->set_verify_ms(absl::ToDoubleMilliseconds(summary.verify_time));
  timing->set_total_ms(absl::ToDoubleMilliseconds(summary.total_time));
  proto->set_seed(summary.seed);
  proto->set_request_id(summary.request_id);
  Append(summary.prompt, proto->mutable_prompt_token_ids());
  proto->set_stop_string(summary.stop_string);
  Append(summary.embedding, proto->mutable_embedding());
}

GenerationSummary FromProto(const v1::GenerateResult& proto) {
  GenerationSummary summary;
  summary.finish = FromProto(proto.finish_reason());
  summary.stop_string = proto.stop_string();
  summary.prompt_tokens = proto.usage().prompt_tokens();
  summary.completion_tokens = proto.usage().completion_tokens();
  summary.reused_tokens = proto.usage().cached_prompt_tokens();
  summary.mode = proto.speculation().mode();
  summary.rounds = proto.speculation().rounds();
  summary.drafted = proto.speculation().drafted_tokens();
  summary.accepted = proto.speculation().accepted_tokens();
  for (const v1::DrafterStats& stats : proto.speculation().by_drafter()) {
    summary.by_drafter.push_back(
        {FromProto(stats.drafter()), stats.drafted_tokens(),
         stats.accepted_tokens(), stats.rounds(), stats.degraded_rounds(),
         stats.shortened_drafts()});
  }
  const v1::Timing& timing = proto.timing();
  summary.time_to_first_token =
      absl::Milliseconds(timing.time_to_first_token_ms());
  summary.draft_time = absl::Milliseconds(timing.draft_ms());
  summary.verify_time = absl::Milliseconds(timing.verify_ms());
  summary.total_time = absl::Milliseconds(timing.total_ms());
  // Every round commits its accepted drafts and one bonus token. Messages carry
  // the speed, from which the time follows.
  summary.decoded_tokens = summary.rounds + summary.accepted;
  if (timing.decode_tokens_per_s() > 0) {
    summary.decode_time =
        absl::Seconds(static_cast<double>(summary.decoded_tokens) /
                      timing.decode_tokens_per_s());
  }
  summary.seed = proto.seed();
  summary.request_id = proto.request_id();
  summary.prompt = Values(proto.prompt_token_ids());
  summary.embedding = Values(proto.embedding());
  return summary;
}

void ToProto(const GeneratorInfo& info, v1::GetModelInfoResponse* proto) {
  proto->set_model(info.model);
  proto->set_vocab_size(static_cast<int32_t>(info.vocab_size));
  proto->set_max_positions(static_cast<int32_t>(info.max_positions));
  for (const std::string& mode : info.modes) proto->add_modes(mode);
  proto->set_numerics_fingerprint(info.numerics_fingerprint);
  proto->set_tokenizer_fingerprint(info.tokenizer_fingerprint);
  proto->set_max_tree_nodes(info.max_tree_nodes);
  proto->set_embedding_size(info.embedding_size);
}

GeneratorInfo FromProto(const v1::GetModelInfoResponse& proto) {
  GeneratorInfo info;
  info.model = proto.model();
  info.vocab_size = proto.vocab_size();
  info.max_positions = proto.max_positions();
  info.max_tree_nodes = proto.max_tree_nodes();
  info.embedding_size =
      std::clamp(proto.embedding_size(), 0, kMaxEmbeddingSize);
  info.modes.assign(proto.modes().begin(), proto.modes().end());
  // A server of another version may have a mode that this one does not know.
  const auto mode = FromProto(proto.default_speculation());
  if (mode.ok() && mode->has_value()) info.default_mode = (*mode)->name();
  info.numerics_fingerprint = proto.numerics_fingerprint();
  info.tokenizer_fingerprint = proto.tokenizer_fingerprint();
  return info;
}

}  // namespace foretoken::rpc
