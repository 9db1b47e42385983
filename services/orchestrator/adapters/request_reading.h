// From Generate's messages to the decode loop's structs and back.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REQUEST_READING_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REQUEST_READING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"
#include "foretoken/v1/generation.pb.h"
#include "foretoken/v1/verifier.pb.h"
#include "services/orchestrator/core/decode_loop.h"

namespace foretoken::orchestrator {

// request_id and cache_scope; InvalidArgument by field.
absl::Status CheckNames(const v1::GenerateRequest& request);

// The prompt's ids; `tokenizer` may be null: no text then. InvalidArgument by
// field, also for a text over `max_prompt_bytes`.
absl::StatusOr<std::vector<TokenId>> ReadPrompt(
    const v1::GenerateRequest& request, const Tokenizer* tokenizer,
    int64_t max_prompt_bytes);

// All of the request but prompt, seed, id and deadline.
absl::StatusOr<GenerationRequest> ReadRequest(
    const v1::GenerateRequest& request);

// The request's max_tree_nodes, `limit` where it has none; InvalidArgument
// outside 1..limit.
absl::StatusOr<int32_t> ReadTreeNodes(const v1::SpeculationConfig& config,
                                      int32_t limit);

// FailedPrecondition where the verifiers' model has another tokenizer than
// `tokenizer`, which may be null.
absl::StatusOr<TargetInfo> ReadTarget(const v1::GetVerifierInfoResponse& info,
                                      const Tokenizer* tokenizer);
PassCosts ReadPassCosts(const v1::GetVerifierInfoResponse& info);

void FillDelta(const Delta& delta, v1::GenerateDelta* proto);
// Usage, speculation (its mode apart) and timing.
void FillResult(const GenerationSummary& summary, v1::GenerateResult* result);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_REQUEST_READING_H_
