// Admission: which of the verifier's sessions hold KV pages.
//
// A session is admitted when its text and one round fit; a session that needs
// one more page takes it from the youngest admitted one, which is preempted and
// later replayed with unchanged output. Waiting sessions are admitted strictly
// by age, so none starves. A session that its client has left idle for
// idle_time may be preempted for them, so that its pages do not lie unused.
//
// Source: preemption by recomputation after vLLM (arXiv:2309.06180,
// section 4.5).
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_ADMISSION_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_ADMISSION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/infer/backend.h"
#include "services/verifier/core/pass_shares.h"
#include "services/verifier/core/session.h"

namespace foretoken::verifier {

struct AdmissionOptions {
  int32_t reserve = 64;  // tokens beyond the text, for one round
  // A session that waits longer for its client may lose its KV to others.
  absl::Duration idle_time = absl::Seconds(2);
};

struct AdmissionTotals {
  int64_t reused_tokens = 0;  // not computed, thanks to the prefix cache
  int64_t preemptions = 0;
  int64_t replays = 0;  // preempted sessions admitted again
};

class Admission {
 public:
  // The other arguments must outlive the object.
  Admission(const AdmissionOptions& options, Backend& backend,
            Sessions& sessions, const PassShares& shares, const Clock& clock)
      : options_(options),
        backend_(backend),
        sessions_(sessions),
        shares_(shares),
        clock_(clock) {}

  // InvalidArgument for a text of `length` tokens that does not fit even into
  // the empty cache.
  absl::Status CheckFits(int64_t length) const;

  // Admits waiting sessions while there is room: preempted ones first, then
  // those of the caller who has had least, and of each the oldest. Fails a
  // session that does not fit even into the empty cache.
  void AdmitWaiting(std::vector<SessionFailure>& failures);

  // Makes room for `length` committed tokens of an admitted session, at the
  // cost of others. If the session is itself the youngest, it is preempted
  // instead: its KV is then closed. ResourceExhausted if it is alone and there
  // is no room.
  absl::Status Reserve(Session& session, int64_t length);

  // Frees the session's pages.
  void Release(Session& session);
  // Call when a waiting or admitted session has been removed.
  void NoteGone() { blocked_ = false; }

  bool any_waiting() const;
  // False if waiting sessions found no room, and none was freed since.
  bool may_admit() const { return !blocked_; }
  // The earliest time at which an idle session may be preempted.
  absl::Time NextIdle() const;

  int32_t admitted() const;
  const AdmissionTotals& totals() const { return totals_; }

 private:
  // False, with nothing changed, if there is no room for the text and
  // `reserve` tokens more.
  absl::StatusOr<bool> Admit(Session& session, int64_t reserve);
  void Preempt(Session& session);
  Session* YoungestAdmitted();
  // The admitted session that has been idle longest; nullptr if none has been
  // for idle_time.
  Session* LongestIdle();

  const AdmissionOptions options_;
  Backend& backend_;
  Sessions& sessions_;
  const PassShares& shares_;
  const Clock& clock_;
  bool blocked_ = false;
  AdmissionTotals totals_;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_ADMISSION_H_
