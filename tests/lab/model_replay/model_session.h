// A session on a backend whose output is ignored: passes are run for their
// cost.
//
// Owned by the backend's thread.
#ifndef FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_SESSION_H_
#define FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_SESSION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/infer/backend.h"

namespace foretoken::model_replay {

class ModelSession {
 public:
  // `backend` must outlive the session. Commits `text`. A session with a scope
  // takes the KV of texts that began alike from earlier sessions of that scope;
  // an empty scope shares nothing.
  static absl::StatusOr<std::unique_ptr<ModelSession>> Open(
      Backend& backend, absl::string_view scope,
      absl::Span<const TokenId> text);
  ~ModelSession();
  ModelSession(const ModelSession&) = delete;
  ModelSession& operator=(const ModelSession&) = delete;

  // Commits `tokens` as a chain, kChunkRows per pass. Only the last row outputs
  // a token.
  absl::Status Append(absl::Span<const TokenId> tokens);

  // Runs one pass in which every row outputs a token. Commits nothing.
  absl::Status Pass(absl::Span<const TokenId> tokens,
                    absl::Span<const int32_t> parents);

  // Commits rows of the last pass.
  absl::Status Commit(absl::Span<const int32_t> rows);

  // Drops the committed tokens from position `length` on.
  absl::Status Truncate(int64_t length);

  static constexpr int32_t kChunkRows = 512;

 private:
  ModelSession(Backend& backend, const OpenedSession& opened)
      : backend_(backend),
        session_(opened.session),
        length_(opened.reused_tokens) {}

  Backend& backend_;
  const SessionId session_;
  int64_t length_;  // committed
  PassResult result_;
  std::vector<int32_t> chain_;  // -1, 0, 1, ...
  std::vector<int32_t> rows_;   // 0, 1, 2, ...
};

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_LAB_MODEL_REPLAY_MODEL_SESSION_H_
