// Conversion between the public API's messages (generation.proto) and plain
// structs (common/generation/generation.h).
//
// FromProto checks sizes and parameters; GenerationService checks names and
// whatever needs the model. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_CONVERT_GENERATION_H_
#define FORETOKEN_COMMON_RPC_CONVERT_GENERATION_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/generation/generation.h"
#include "common/generation/generator.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::rpc {

// The deadline is not converted: it is the call's. Unimplemented for a
// replay-only mode.
absl::Status ToProto(const GenerationRequest& request,
                     v1::GenerateRequest* proto);
// InvalidArgument names the field. The prompt is moved out of `proto`.
absl::StatusOr<GenerationRequest> FromProto(v1::GenerateRequest proto);

void ToProto(const GenerationDelta& delta, v1::GenerateDelta* proto);
GenerationDelta FromProto(const v1::GenerateDelta& proto);

void ToProto(const GenerationSummary& summary, v1::GenerateResult* proto);
GenerationSummary FromProto(const v1::GenerateResult& proto);

// `default_speculation` is left to the caller, who has the mode.
void ToProto(const GeneratorInfo& info, v1::GetModelInfoResponse* proto);
GeneratorInfo FromProto(const v1::GetModelInfoResponse& proto);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_CONVERT_GENERATION_H_
