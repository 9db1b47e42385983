// Conversion between proto messages and plain structs. Proto types end here.
//
// FromProto checks sizes and shapes: any message gives a struct of bounded
// size, or InvalidArgument that names the field. Checks that need the model
// (vocabulary, limits) are left to its owner.
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_CONVERT_H_
#define FORETOKEN_COMMON_RPC_CONVERT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/generation/generation.h"
#include "common/grammar/constraint.h"
#include "common/sampling/sampler.h"
#include "common/sampling/sampling_params.h"
#include "common/speculation/modes.h"
#include "common/speculation/round.h"
#include "common/speculation/token_tree.h"
#include "common/speculation/verifier_peer.h"
#include "foretoken/v1/generation.pb.h"
#include "foretoken/v1/sampling.pb.h"
#include "foretoken/v1/token_tree.pb.h"
#include "foretoken/v1/verifier.pb.h"

namespace foretoken::rpc {

// Bounds of one message.
inline constexpr int32_t kMaxTokensPerMessage = 1 << 22;
inline constexpr int32_t kMaxTreeNodes = 4096;
inline constexpr int32_t kMaxEmbeddingSize = 1 << 16;

// end_tokens are not part of the message. `seed` keeps its default if the
// message has none.
void ToProto(const SamplingParams& params, v1::SamplingParams* proto);
absl::StatusOr<SamplingParams> FromProto(const v1::SamplingParams& proto);

// An empty constraint has no message. InvalidArgument, by field, for a message
// without a kind, json_object: false, and more choices than are ever compiled.
// The message's texts are moved.
void ToProto(const Constraint& constraint, v1::Constraint* proto);
absl::StatusOr<Constraint> FromProto(v1::Constraint proto);

// Tokens, parents and probes; estimates and proposers are not sent.
void ToProto(const TokenTree& tree, v1::TokenTree* proto);
absl::StatusOr<TokenTree> FromProto(const v1::TokenTree& proto);

v1::Drafter ToProto(DrafterId id);
DrafterId FromProto(v1::Drafter drafter);  // kTarget for an unknown number

v1::DraftArm ToProto(DraftArm arm);
DraftArm FromProto(v1::DraftArm arm);  // kNone for an unknown number

v1::FinishReason ToProto(FinishReason reason);
FinishReason FromProto(v1::FinishReason reason);

v1::Pooling ToProto(Pooling pooling);
// InvalidArgument for an unknown number.
absl::StatusOr<Pooling> FromProto(v1::Pooling pooling);

// A mode and the message of the same name; parameters that were not given stay
// unset. Unimplemented for a replay-only mode, which has no message.
// InvalidArgument names the parameter; nullopt for a config without a mode.
absl::Status ToProto(const Mode& mode, v1::SpeculationConfig* proto);
absl::StatusOr<std::optional<Mode>> FromProto(
    const v1::SpeculationConfig& proto);

// The verifier's session; its deadline is the call's. FailedPrecondition for a
// constraint of another grammar version.
void ToProto(const SessionRequest& request, v1::OpenSession* proto);
absl::StatusOr<SessionRequest> FromProto(const v1::OpenSession& proto);

void ToProto(const RoundRequest& request, v1::Round* proto);
absl::StatusOr<RoundRequest> FromProto(const v1::Round& proto);

// Logprobs are written only if `with_logprobs`.
void ToProto(const PrefillResult& result, bool with_logprobs,
             v1::Prefilled* proto);
absl::StatusOr<PrefillResult> FromProto(const v1::Prefilled& proto);

void ToProto(const RoundResult& result, bool with_logprobs, bool with_rows,
             v1::RoundResult* proto);
// Checks the result against the tree it answers.
absl::StatusOr<RoundResult> FromProto(const v1::RoundResult& proto,
                                      int32_t tree_size);

void ToProto(const VerifierInfo& info, v1::GetVerifierInfoResponse* proto);
VerifierInfo FromProto(const v1::GetVerifierInfoResponse& proto);

void ToProto(const SampledToken& token, v1::TokenLogprobs* proto);
// The message has no token id; `token` keeps its default.
SampledToken FromProto(const v1::TokenLogprobs& proto);

// Helpers of the conversions.

// InvalidArgument if `field` has more than `limit` entries.
absl::Status CheckSize(absl::string_view field, int64_t size, int64_t limit);
// InvalidArgument if numerics_fingerprint has more than kMaxFingerprintBytes.
absl::Status CheckFingerprint(absl::string_view fingerprint);

// Conversions between a vector or span and a repeated field.
template <typename Values, typename Field>
void Append(const Values& values, Field* field) {
  field->Add(values.begin(), values.end());
}
template <typename Value>
std::vector<Value> Values(const google::protobuf::RepeatedField<Value>& field) {
  return {field.begin(), field.end()};
}

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_CONVERT_H_
