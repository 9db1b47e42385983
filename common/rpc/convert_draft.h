// The messages between orchestrator and drafting services (drafting.proto) and
// their plain structs (common/drafting/draft_session.h).
//
// FromProto checks everything that needs no model: sizes, order of trees and
// paths, signs, finite numbers. InvalidArgument names the field. Vocabulary and
// length limits are checked by the service, which knows them.
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_CONVERT_DRAFT_H_
#define FORETOKEN_COMMON_RPC_CONVERT_DRAFT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/drafting/draft_session.h"
#include "common/rpc/convert.h"
#include "foretoken/v1/drafting.pb.h"

namespace foretoken::rpc {

// Bounds of one message.
inline constexpr int kMaxPhrasesPerMessage = 1 << 16;
inline constexpr int kMaxPhraseTokens = 64;
inline constexpr size_t kFingerprintBytes = 32;  // SHA-256

// OK if empty or of kFingerprintBytes.
absl::Status CheckFingerprint(const std::string& fingerprint);

// Unimplemented, naming the mode, for a mode without a message.
absl::Status ToProto(const DraftOpen& open, v1::OpenDrafting* proto);
absl::StatusOr<DraftOpen> FromProto(const v1::OpenDrafting& proto);

// A budget below one microsecond is sent as one, since 0 means no limit.
void ToProto(const DraftRound& round, v1::DraftRound* proto);
absl::StatusOr<DraftRound> FromProto(const v1::DraftRound& proto);

void ToProto(const DraftTree& tree, v1::TokenTree* proto);
// Probabilities are 0 if the message has none; a node with several proposers
// gets the highest-numbered one as its part.
absl::StatusOr<DraftTree> ReadDraft(const v1::TokenTree& proto);
void ToProto(const DraftAnswer& answer, v1::DraftResponse* proto);
absl::StatusOr<DraftAnswer> FromProto(const v1::DraftResponse& proto);

using PhrasesProto = google::protobuf::RepeatedPtrField<v1::Phrase>;
void ToProto(const std::vector<Phrase>& phrases, PhrasesProto* proto);
absl::StatusOr<std::vector<Phrase>> FromProto(const PhrasesProto& proto);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_CONVERT_DRAFT_H_
