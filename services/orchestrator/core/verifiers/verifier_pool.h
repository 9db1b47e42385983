// VerifierPool: the verifiers that this orchestrator may use, which of them are
// up, and which to use first.
//
// A prober asks every verifier for its info about once a second: its health,
// its load from elsewhere, and its model. One model, identified down to the
// bits of its weights and the instructions that compute it (the numerics
// fingerprint), is active: the one that most verifiers run among those that are
// up at the first answer. Others are held in reserve, and logged as errors. A
// new election is held only when no verifier of the active model has been up
// for several probes in a row, never because another model has gained more
// verifiers: an upgrade that replaces verifiers one by one switches when the
// last old one is gone.
//
// A new session goes where the longest prefix of its text was served last,
// unless that verifier has clearly more to do than the least loaded one; then
// it goes to that one. If only its scope is known, or not even that, rendezvous
// hashing of its first tokens stands in for the table, so that all
// orchestrators begin at the same verifier. Sessions stay where they are,
// unless the verifier hangs or leaves them without an answer
// (progress_watch.h). One that has left a session gets none until a pass has
// ended there, for which the pool opens a session of one token itself.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_VERIFIER_POOL_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_VERIFIER_POOL_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/speculation/verifier_peer.h"
#include "services/orchestrator/core/membership.h"
#include "services/orchestrator/core/verifiers/prefix_homes.h"
#include "services/orchestrator/core/verifiers/progress_watch.h"

namespace foretoken::orchestrator {

struct VerifierEndpoint {
  std::string name;  // its address
  // Shared with its owner if that is not the pool.
  std::shared_ptr<VerifierPeer> verifier;
};

// UNAVAILABLE: how a session ends that its verifier has left.
absl::Status LeftError();
bool IsLeft(const absl::Status& status);

struct VerifierPoolOptions {
  absl::Duration probe_interval = absl::Seconds(1);
  absl::Duration probe_timeout = absl::Seconds(2);
  // Consecutive probes without any answer, refusals included, before a verifier
  // is taken for hung and its sessions move on.
  int probes_before_hung = 2;
  // The least time without the end of a pass after which a verifier has left
  // the sessions that wait.
  absl::Duration least_silence = absl::Seconds(5);
  // Consecutive probes without a verifier of the active model, before another
  // model is elected.
  int probes_before_election = 3;
  // Sessions that a verifier may have beyond those of the least loaded one and
  // still get a request whose prefix it served last, as a number and as a
  // share. Both are for prefixes of depth prefix_slack (prefix_homes.h) or
  // more; a shorter one, which saves less, has its share of them, and a scope
  // alone only breaks ties.
  int64_t prefix_slack = 4;
  double prefix_slack_share = 0.25;
  size_t max_prefix_keys = 1 << 16;  // of the table of served prefixes
  // Whether the log names the numerics of the active model; not where the
  // verifier writes them to the same log.
  bool logs_numerics = true;
};

class VerifierPool {
  struct Member;
  struct Watched;

 public:
  // The constructor probes the first verifiers once. `clock` measures silence.
  VerifierPool(const VerifierPoolOptions& options,
               std::vector<VerifierEndpoint> endpoints,
               Clock clock = MonotonicClock());
  ~VerifierPool();

  // Makes these the verifiers. `connect` is called for the index of each name
  // that is new; its first error is logged, and the name left out until the
  // next call. New ones are probed soon. One that is gone is leased last, and
  // destroyed once its leases have ended. One caller at a time.
  void SetMembers(
      const std::vector<std::string>& names,
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<VerifierPeer>>(size_t)>
          connect);

  // Whether any verifier is up: of the active model, or of one that will be
  // elected if none of that comes back, for which requests without output wait.
  bool any_up() const;
  // Calls `changed` whenever any_up() changes, until it is replaced; no call is
  // under way when WatchHealth returns.
  void WatchHealth(std::function<void()> changed);

  // The active model, as of the last probe: the lowest limits of its verifiers,
  // and the pass costs of the first that is up. Unavailable until one has
  // answered; FailedPrecondition, with the reason, while all of them refuse to
  // serve.
  absl::StatusOr<VerifierInfo> Info() const;

  // One use of one verifier, which lives as long; counts as load.
  class Lease {
   public:
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    VerifySessions& sessions() const { return *member_->verifier; }
    const std::string& name() const { return member_->name; }
    // Unique: an address that leaves and comes back gets another one.
    int id() const { return member_->id; }
    // Fails the session with Unavailable if the verifier is found to hang, and
    // with LeftError if it leaves the session while that waits.
    void WatchSession(std::shared_ptr<VerifyListener> session);
    // The watched session begins and ceases to wait for an answer.
    void BeginWait() { session_->wait.Begin(); }
    void EndWait() { session_->wait.End(); }
    // Whether it answered the last probe, be it with a refusal.
    bool answers() const;
    // As of its last answer; 0 without one.
    int32_t grammar_version() const;
    // Cost of its largest measured pass; 0 if unknown.
    absl::Duration longest_pass() const;
    // Reports a call that failed as if the verifier were gone: it is chosen
    // last until it answers a probe.
    void ReportDown();

   private:
    friend class VerifierPool;
    Lease(VerifierPool* pool, Member* member) : pool_(pool), member_(member) {}
    VerifierPool* pool_;
    Member* member_;
    std::shared_ptr<Watched> session_;
  };

  // Leases a verifier of the active model that is up, else one that may run it
  // by now, without the ids in `excluded` and those that leave their sessions;
  // nullopt if there is no other. Notes that it serves the prefixes of `keys`.
  // With `embeds`, only verifiers that make embeddings are leased. The verifier
  // may have changed its model since the probe: a session names the fingerprint
  // that it needs.
  std::optional<Lease> Acquire(const std::set<int>& excluded,
                               const PrefixKeys& keys = {},
                               bool embeds = false);

  // Whether there are verifiers, all of them in `ids`.
  bool AllIn(const std::set<int>& ids) const;
  // Whether another model than that of the fingerprint was elected, and no
  // verifier of the latter is up: a session of it has nowhere to go.
  bool IsReplaced(const std::string& numerics_fingerprint) const;
  // Verifiers and those that are leaving.
  size_t size() const;

 private:
  struct Watched {
    std::shared_ptr<VerifyListener> listener;
    ProgressWatch::Wait wait;
  };
  struct Member {
    Member(int number, std::string address,
           std::shared_ptr<VerifierPeer> client, const ProgressOptions& options)
        : id(number),
          name(std::move(address)),
          verifier(std::move(client)),
          progress(options) {}
    const int id;
    const std::string name;
    const std::shared_ptr<VerifierPeer> verifier;
    std::optional<VerifierInfo> info;  // of the last probe
    bool up = false;                   // answered the last probe
    // Why it will not serve although it runs, as it said at the last probe.
    absl::Status fault;
    bool in_reserve = false;  // runs another model, as of its last answer
    int silent_probes = 0;    // consecutive, without any answer
    std::set<std::shared_ptr<Watched>> sessions;
    ProgressWatch progress;
    std::unique_ptr<VerifySession> trial;  // the prober's
    bool leaving = false;                  // by SetMembers
    int64_t uses = 0;                      // our leases
    int64_t elsewhere = 0;  // sessions of others, at the last probe
  };

  struct Probe;

  void ProbeMain();
  // `timed`: whether an interval has passed, as opposed to a probe of new
  // members.
  void ProbeAll(bool timed);
  void Record(Member& member, const absl::StatusOr<VerifierInfo>& info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fails the sessions that the member has left.
  void WatchProgress(Member& member, const absl::StatusOr<VerifierInfo>& info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tries the members that have left a session and are due.
  void TryAvoided() ABSL_LOCKS_EXCLUDED(mu_);
  // Elects a model where none is active any more, and sorts the members.
  void Elect(bool timed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Works(const Member& member) const {
    return member.up && !member.progress.avoided();
  }
  bool Serves(const Member& member) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return Works(member) && !member.in_reserve;
  }
  void MergeInfo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // That of the members, if all have one.
  absl::Status Fault() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sessions that a member which served a prefix of this depth may have beyond
  // `load`, those of the least loaded one.
  double SlackOf(int depth, int64_t load) const;
  // The member to lease; null if all are excluded.
  Member* Choose(const std::set<int>& excluded, const PrefixKeys& keys,
                 bool embeds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ProgressOptions ProgressLimits() const;

  const VerifierPoolOptions options_;
  const Clock clock_;
  absl::Mutex health_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  std::function<void()> health_changed_ ABSL_GUARDED_BY(health_mu_);
  mutable absl::Mutex mu_;
  // Only the prober takes members out.
  Members<Member> members_ ABSL_GUARDED_BY(mu_);
  int next_id_ ABSL_GUARDED_BY(mu_) = 0;
  PrefixHomes homes_ ABSL_GUARDED_BY(mu_);
  std::optional<VerifierInfo> info_ ABSL_GUARDED_BY(mu_);  // the active model
  int probes_without_active_ ABSL_GUARDED_BY(mu_) = 0;
  bool any_up_ ABSL_GUARDED_BY(mu_) = false;
  bool probe_now_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Probe> probe_ ABSL_GUARDED_BY(mu_);  // the latest
  // Names that could not be connected, used by SetMembers alone.
  std::set<std::string> unconnected_;
  std::thread prober_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_VERIFIER_POOL_H_
