// Admission: which of the verifier's sessions hold KV pages.
//
// A session is admitted when its text and one round fit; a session that needs
// one more page takes it from another, which is preempted and later replayed
// with unchanged output. A session that its client has left idle for idle_time
// is preempted first, so that its pages do not lie unused.
//
// Callers share the pages by weight; a page that several sessions of a caller
// list counts once. The session that is preempted is the youngest of the caller
// who holds most for its weight, also where a waiting session's caller would
// hold less than that. Waiting sessions of the caller who holds least for its
// weight are admitted first; among equals preempted ones, then those of the
// caller who was served least, then the oldest. The oldest admitted session is
// never preempted for another caller's unless it is idle, so none starves. A
// caller who has others preempted for a text that it then gives up before it is
// read, admitted or not, still counts as holding its pages for a while: else it
// could have others replay again and again at no cost of its own.
//
// Source: preemption by recomputation after vLLM (arXiv:2309.06180,
// section 4.5); longest queue drop after Suter et al., "Design considerations
// for supporting TCP with per-flow queueing" (INFOCOM 1998).
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_ADMISSION_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_ADMISSION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
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

  // Admits waiting sessions, in this order, while there is room or another
  // caller holds more. Fails a session that does not fit even into the empty
  // cache.
  void AdmitWaiting(std::vector<SessionFailure>& failures);

  // Makes room for `length` committed tokens of an admitted session, at the
  // cost of others, or preempts the session itself: its KV is then closed.
  // ResourceExhausted if it is alone and there is no room.
  absl::Status Reserve(Session& session, int64_t length);

  // Call before removing a session that its client has closed or whose deadline
  // has passed.
  void NoteGivenUp(const Session& session);
  // Frees the session's pages.
  void Release(Session& session);
  // Call when a session has been added, or a waiting or admitted one removed.
  void NoteChange() { blocked_ = false; }

  bool any_waiting() const;
  // False if waiting sessions found no room, and nothing changed since.
  bool may_admit() const { return !blocked_; }
  // The earliest time at which an idle session may be preempted.
  absl::Time NextIdle() const;

  int32_t admitted() const;
  const AdmissionTotals& totals() const { return totals_; }

 private:
  // Tokens of room over weight, by caller with admitted sessions or prompts
  // given up lately.
  using Holdings = std::map<std::string, double>;
  // A prompt that was given up, whose room counts until then.
  struct GivenUp {
    std::string caller;
    double tokens = 0;  // over weight
    absl::Time until;
  };

  int64_t RoomFor(const Session& session, int64_t reserve) const;
  // Room that a waiting session takes if it is admitted, in tokens of whole
  // pages.
  struct Claim {
    int64_t room = 0;             // beyond what its caller's sessions list
    int64_t free = 0;             // beyond what any session lists
    std::vector<int32_t> shared;  // pages that sessions list
  };
  Claim ClaimOf(const Session& session, int64_t reserve);
  // False, with nothing changed, if there is no room for the text and
  // `reserve` tokens more.
  absl::StatusOr<bool> Admit(Session& session, int64_t reserve);
  // The same, at the cost of others.
  absl::StatusOr<bool> AdmitAndPreempt(Session& session);
  void Preempt(Session& session);
  Holdings Held();
  int64_t NextMark();
  // The waiting session that comes next; nullptr if none waits.
  Session* NextWaiting();
  // Tokens free after preempting every session that may be preempted for
  // `session`.
  int64_t Reclaimable(const Session& session, const Claim& claimed);
  // The session that gives way so that the caller of `session` may hold `room`
  // tokens more; nullptr if none of another caller's does.
  Session* HeaviestElsewhere(const Session& session, int64_t room);
  // The youngest admitted session, of `caller` unless that is null, but not
  // `spared`.
  Session* Youngest(const std::string* caller, const Session* spared);
  Session* Oldest();
  // The admitted session that has been idle longest; nullptr if none has been
  // for idle_time.
  Session* LongestIdle();

  const AdmissionOptions options_;
  Backend& backend_;
  Sessions& sessions_;
  const PassShares& shares_;
  const Clock& clock_;
  bool blocked_ = false;
  int64_t calls_ = 0;  // of AdmitWaiting
  // Scratch, [pages], valid where the mark is the one of this use. (A set of
  // all pages that a few hundred sessions list would take longer than a pass.)
  std::vector<int64_t> marks_;
  std::vector<int32_t> counts_;
  int64_t mark_ = 0;
  std::deque<GivenUp> given_up_;  // oldest first
  AdmissionTotals totals_;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_ADMISSION_H_
