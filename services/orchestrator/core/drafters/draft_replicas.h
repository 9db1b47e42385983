// DraftReplicas: the replicas of one drafting service, and which of them a
// session or a scope's phrases belong to.
//
// A session in a cache scope goes to the replica that owns the scope
// (rendezvous.h), so that the scope's history and phrases stay in one place.
// If the service keeps nothing by scope that others need, the owner takes it
// only while it has about as many sessions as the others, or does not matter at
// all. A session without a scope goes to the replica with the fewest sessions
// of this orchestrator. Replicas that report that they do not serve come last,
// and one whose breaker is open is left out, except for the probes that the
// breaker allows. A session stays where it was opened. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_REPLICAS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_REPLICAS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/drafting/shared_phrases.h"
#include "services/orchestrator/core/drafters/circuit_breaker.h"
#include "services/orchestrator/core/drafters/draft_peer.h"
#include "services/orchestrator/core/membership.h"

namespace foretoken::orchestrator {

// State that a service keeps by cache scope.
enum class ScopeState {
  kNone,     // nothing: scopes are ignored
  kCache,    // KV of prompts: the owner is preferred, its load bounded
  kHistory,  // what later sessions need: the owner gets all sessions
};

class DraftReplicas final : public SharedPhrases {
  struct Replica;

 public:
  // `service` is for logs. `on_state`, if any, is told of every new state of
  // the service: that of its replica whose breaker is closed the most.
  DraftReplicas(std::string service, const CircuitBreakerOptions& breaker,
                Clock clock, CircuitBreaker::Listener on_state = nullptr,
                ScopeState scope_state = ScopeState::kHistory);
  ~DraftReplicas() override;

  // Makes these the replicas. `connect` is called for the index of each name
  // that is new; its first error is logged, and the name left out until the
  // next call. A replica that is gone gets no new sessions, and is destroyed by
  // a later call, once its sessions have ended. One caller at a time.
  void SetMembers(
      const std::vector<std::string>& names,
      absl::FunctionRef<absl::StatusOr<DraftEndpoint>(size_t)> connect);

  // One use of a replica, which lives as long; counts as its load.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : owner_(other.owner_),
          replica_(std::exchange(other.replica_, nullptr)),
          epoch_(other.epoch_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    DraftPeer& peer() const;
    int id() const;
    // The breaker's epoch when the use was allowed.
    int64_t epoch() const { return epoch_; }

   private:
    friend class DraftReplicas;
    Lease(DraftReplicas* owner, Replica* replica, int64_t epoch)
        : owner_(owner), replica_(replica), epoch_(epoch) {}
    DraftReplicas* owner_;
    Replica* replica_;
    int64_t epoch_;
  };

  enum class Use {
    kAsk,        // may be the probe of a replica whose breaker is open
    kOpenAhead,  // before the first ask, which may have to be such a probe
    kReplace,    // only where the breaker is closed, and never `avoid`
  };
  // Chooses a replica for a session in this scope; nullopt if none may be asked
  // now. `avoid`: the id of one that is chosen last; -1: none.
  std::optional<Lease> Choose(absl::string_view scope, Use use, int avoid = -1);

  // The phrases that the scope's owner keeps.
  std::unique_ptr<Fetch> GetPhrases(const PhraseQuery& query,
                                    Done done) override;

  const std::string& service() const { return service_; }
  const Clock& clock() const { return clock_; }
  // Replicas and those that are leaving.
  size_t size() const;

 private:
  // The state of the service as a function of its replicas' breakers. Listeners
  // run under a breaker's lock: a lock of its own, and the last one taken.
  class States;
  class HeldFetch;

  struct Replica {
    Replica(int number, std::string address, DraftEndpoint endpoint,
            DraftReplicas& owner);
    const int id;
    const std::string name;
    DraftPeer peer;
    bool leaving = false;
    int64_t uses = 0;    // leases, and choices under way
    int64_t leases = 0;  // of `uses`
  };
  struct Candidate {
    Replica* replica;
    int64_t leases;
    uint64_t turn;  // its place among those with as many leases
  };
  // The order in which candidates are asked.
  using Rank = std::tuple<bool, bool, bool, uint64_t, uint64_t, Replica*>;

  // Counts a use of every replica that is not leaving.
  std::vector<Candidate> Pin() ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<Rank> Sort(const std::vector<Candidate>& candidates,
                         absl::string_view scope, int avoid) const;
  // Takes these uses back, but for that of `chosen`, if any, which is a lease.
  void Unpin(const std::vector<Candidate>& candidates, Replica* chosen)
      ABSL_LOCKS_EXCLUDED(mu_);

  const std::string service_;
  const CircuitBreakerOptions breaker_;
  const Clock clock_;
  const ScopeState scope_state_;
  const std::unique_ptr<States> states_;
  // Names that could not be connected, used by SetMembers alone.
  std::set<std::string> unconnected_;

  mutable absl::Mutex mu_;
  Members<Replica> replicas_ ABSL_GUARDED_BY(mu_);
  int next_id_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t turn_ ABSL_GUARDED_BY(mu_) = 0;  // breaks ties in turn
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_DRAFTERS_DRAFT_REPLICAS_H_
