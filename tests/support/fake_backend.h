// FakeBackend: a model without weights, for fast and exhaustive tests.
//
// Its logits are a fixed function of a row's whole path: mostly of the last
// token (so that its text repeats itself and drafts can be right), a little of
// everything before (so that a wrong path shows). Pages, prefix reuse and
// eviction are the real KvCache's. It checks its caller's side of the Backend
// contract and dies on a breach.
//
// Owned by one thread.
#ifndef FORETOKEN_TESTS_SUPPORT_FAKE_BACKEND_H_
#define FORETOKEN_TESTS_SUPPORT_FAKE_BACKEND_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/infer/backend.h"
#include "common/infer/kv_cache.h"

namespace foretoken::testing {

struct FakeBackendOptions {
  int32_t vocab_size = 50;
  int32_t max_positions = 4096;
  int32_t max_rows = 256;
  int64_t pages = 1 << 12;  // of kKvPageTokens
  int64_t max_sessions = 1 << 12;
  // Logits and states after this token are not numbers; -1: of no token.
  TokenId poison = -1;
  // From this pass on, counted from 1, neither are numbers; 0: never.
  int64_t broken_from = 0;
  // Ids at or above this are never drawn; 0: any id may be.
  int32_t head_size = 0;
  // Runs at the beginning of every pass, if set.
  std::function<void()> before_pass;
  std::function<void()> before_states;  // are copied, if set
};

// The logits after `path`, which starts at the first token of the prompt.
std::vector<float> FakeLogits(absl::Span<const TokenId> path,
                              int32_t vocab_size);

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(const FakeBackendOptions& options);

  // The next Forward returns this instead of running.
  void FailNextForward(absl::Status status) { fail_next_ = status; }
  int64_t forwards() const { return forwards_; }
  int32_t last_pass_rows() const { return last_pass_rows_; }

  const ModelConfig& config() const override { return config_; }
  std::string numerics_fingerprint() const override { return "fake"; }
  absl::StatusOr<OpenedSession> Open(absl::string_view cache_scope,
                                     absl::Span<const TokenId> prompt) override;
  absl::Status Close(SessionId session) override;
  absl::StatusOr<int64_t> CommittedLength(SessionId session) const override;
  absl::Status Reserve(SessionId session, int64_t length) override;
  absl::Status Truncate(SessionId session, int64_t length) override;
  absl::Status Forward(absl::Span<const PassSession> pass,
                       PassResult& result) override;
  absl::Status Commit(SessionId session,
                      absl::Span<const int32_t> rows) override;
  absl::StatusOr<absl::Span<const float>> Logits(SessionId session,
                                                 int32_t row) override;
  // FakeLogits of the row's path, in the place of a vocabulary of d_model.
  absl::Status States(SessionId session, int32_t first, int32_t count,
                      absl::Span<float> states) override;
  bool Draws(TokenId token) const override {
    return options_.head_size == 0 || token < options_.head_size;
  }
  int32_t max_rows() const override { return options_.max_rows; }
  const KvCache& kv_cache() const override { return cache_; }

 private:
  struct Row {
    TokenId token;
    int32_t parent;
  };
  struct Session {
    std::vector<TokenId> committed;
    std::vector<Row> rows;  // of the last pass
    bool may_commit = false;
  };

  // Fills logits_ with those after `path`.
  void ComputeLogits(absl::Span<const TokenId> path);
  // Tokens of the pass on the way to `row`, root first.
  static std::vector<TokenId> PathOf(const Session& session, int32_t row);

  const FakeBackendOptions options_;
  ModelConfig config_;
  KvCache cache_;
  std::map<SessionId, Session> sessions_;
  absl::Status fail_next_;
  int64_t forwards_ = 0;
  int32_t last_pass_rows_ = 0;
  std::vector<float> logits_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_FAKE_BACKEND_H_
