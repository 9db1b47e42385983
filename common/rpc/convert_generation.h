// The public API's messages (generation.proto) and their plain structs
// (common/speculation/generation.h).
//
// FromProto checks sizes and parameters by field; names, and what needs the
// model, are checked by GenerationService. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_CONVERT_GENERATION_H_
#define FORETOKEN_COMMON_RPC_CONVERT_GENERATION_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/speculation/generation.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::rpc {

// The deadline is the call's. Unimplemented for a mode of replay alone.
absl::Status ToProto(const GenerationRequest& request,
                     v1::GenerateRequest* proto);
// InvalidArgument by field.
absl::StatusOr<GenerationRequest> FromProto(const v1::GenerateRequest& proto);

void ToProto(const GenerationDelta& delta, v1::GenerateDelta* proto);
GenerationDelta FromProto(const v1::GenerateDelta& proto);

void ToProto(const GenerationSummary& summary, v1::GenerateResult* proto);
GenerationSummary FromProto(const v1::GenerateResult& proto);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_CONVERT_GENERATION_H_
