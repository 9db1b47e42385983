// SessionBook: an engine's sessions by id, hence by age: ids rise and are never
// reused. Iteration is oldest first, so that an engine is deterministic.
//
// Owned by the engine thread.
#ifndef FORETOKEN_COMMON_ENGINE_SESSION_BOOK_H_
#define FORETOKEN_COMMON_ENGINE_SESSION_BOOK_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/engine/engine_report.h"
#include "common/infer/backend.h"

namespace foretoken {

// `Session` has a member `SessionId id`.
template <typename Session>
class SessionBook {
 public:
  explicit SessionBook(int32_t max_sessions) : max_sessions_(max_sessions) {}

  // ResourceExhausted where Add would exceed the limit.
  absl::Status CheckRoom() const {
    if (size() < max_sessions_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", max_sessions_, " sessions are in use"));
  }

  // Assigns the session an id and stores it at a stable address.
  Session& Add(Session session) {
    session.id = next_id_++;
    const SessionId id = session.id;
    return sessions_.emplace(id, std::move(session)).first->second;
  }

  // NotFound: no such session.
  absl::StatusOr<Session*> Find(SessionId id) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return Unknown(id);
    return &found->second;
  }
  absl::StatusOr<const Session*> Find(SessionId id) const {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return Unknown(id);
    return &found->second;
  }

  // NotFound: no such session.
  absl::Status Remove(SessionId id) {
    return sessions_.erase(id) == 1 ? absl::OkStatus() : Unknown(id);
  }

  // Removes an existing session and reports the reason.
  void Fail(SessionId id, absl::Status status,
            std::vector<SessionFailure>& failures) {
    failures.push_back({id, std::move(status)});
    FORETOKEN_CHECK(sessions_.erase(id) == 1);
  }

  int32_t size() const { return static_cast<int32_t>(sessions_.size()); }

  // Pairs of id and session.
  auto begin() { return sessions_.begin(); }
  auto end() { return sessions_.end(); }
  auto begin() const { return sessions_.begin(); }
  auto end() const { return sessions_.end(); }
  auto rbegin() { return sessions_.rbegin(); }
  auto rend() { return sessions_.rend(); }

 private:
  static absl::Status Unknown(SessionId id) {
    return absl::NotFoundError(absl::StrCat("no session ", id));
  }

  const int32_t max_sessions_;
  std::map<SessionId, Session> sessions_;
  SessionId next_id_ = 1;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_SESSION_BOOK_H_
