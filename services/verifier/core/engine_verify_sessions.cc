#include "services/verifier/core/engine_verify_sessions.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::verifier {

class EngineVerifySessions::Session final : public VerifySession {
 public:
  Session(const EngineVerifySessions& sessions,
          std::unique_ptr<Loop::Session> session)
      : sessions_(sessions), session_(std::move(session)) {}

  absl::Status Ask(RoundRequest request) override {
    FORETOKEN_RETURN_IF_ERROR(sessions_.CheckTree(request));
    return session_->Ask(std::move(request));
  }

 private:
  const EngineVerifySessions& sessions_;
  const std::unique_ptr<Loop::Session> session_;
};

absl::StatusOr<std::unique_ptr<VerifySession>> EngineVerifySessions::Open(
    SessionRequest request, std::shared_ptr<VerifyListener> listener) {
  FORETOKEN_RETURN_IF_ERROR(Check(request));
  if (!request.constraint.empty()) {
    auto grammar = grammars_.Get(request.caller, request.constraint);
    if (!grammar.ok()) {
      // Whatever is wrong with it, another verifier would say the same.
      return absl::InvalidArgumentError(
          absl::StrCat("constraint: ", grammar.status().message()));
    }
    request.grammar = *std::move(grammar);
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      std::unique_ptr<Loop::Session> session,
      loop_.Open(std::move(request), std::move(listener)));
  return std::make_unique<Session>(*this, std::move(session));
}

absl::Status EngineVerifySessions::Check(const SessionRequest& request) const {
  const std::string& wanted = request.numerics_fingerprint;
  if (!wanted.empty() && wanted != loop_.numerics_fingerprint()) {
    return absl::AbortedError(absl::StrCat(
        "numerics_fingerprint: the session has another than this verifier's ",
        loop_.numerics_fingerprint()));
  }
  const int64_t most = loop_.model().max_positions;
  if (static_cast<int64_t>(request.tokens.size()) > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("token_ids: ", request.tokens.size(),
                     " tokens, the model's context is ", most));
  }
  return absl::OkStatus();
}

absl::Status EngineVerifySessions::CheckTree(
    const RoundRequest& request) const {
  const int32_t nodes = request.tree.size();
  const int32_t drafts = request.tree.draft_nodes();
  if (drafts > options_.max_tree_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree: ", drafts, " draft nodes, want at most ",
                     options_.max_tree_nodes));
  }
  if (nodes > options_.max_rows_per_session) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree: ", nodes, " nodes, want at most ",
                     options_.max_rows_per_session));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::verifier
