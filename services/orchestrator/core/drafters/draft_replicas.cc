#include "services/orchestrator/core/drafters/draft_replicas.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "services/orchestrator/core/rendezvous.h"

namespace foretoken::orchestrator {
namespace {

double RandomShare() {
  thread_local std::minstd_rand random{std::random_device()()};
  return std::uniform_real_distribution<double>(0.0, 1.0)(random);
}

// Sessions that the owner of a scope may have beyond those of the least loaded
// replica, as a number and as a share, if its load is bounded.
constexpr int64_t kScopeSlack = 4;
constexpr int64_t kScopeSlackShare = 4;  // a quarter

// By CircuitBreaker::State.
constexpr const char* kStateNames[] = {"closed", "half-open", "open"};

}  // namespace

DraftPeer::DraftPeer(std::string name, DraftEndpoint endpoint,
                     const CircuitBreakerOptions& breaker, Clock clock,
                     CircuitBreaker::Listener on_state)
    : name_(std::move(name)),
      endpoint_(std::move(endpoint)),
      breaker_(breaker, std::move(clock), RandomShare,
               [name = name_,
                on_state = std::move(on_state)](CircuitBreaker::State state) {
                 if (on_state) on_state(state);
                 FORETOKEN_LOG(kInfo, name, ": circuit breaker ",
                               kStateNames[static_cast<int>(state)]);
               }) {}

class DraftReplicas::States {
 public:
  explicit States(CircuitBreaker::Listener listener)
      : listener_(std::move(listener)) {}

  // One lock over all replicas: the gauge shows the best state, and reports of
  // two replicas must not overtake each other.
  void Set(int id, CircuitBreaker::State state) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    states_[id] = state;
    Report();
  }
  void Erase(int id) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    states_.erase(id);
    Report();
  }

 private:
  void Report() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    CircuitBreaker::State best = CircuitBreaker::State::kClosed;
    if (!states_.empty()) {
      best = std::min_element(states_.begin(), states_.end(),
                              [](const auto& a, const auto& b) {
                                return a.second < b.second;
                              })
                 ->second;
    }
    if (std::exchange(reported_, best) != best && listener_) listener_(best);
  }

  const CircuitBreaker::Listener listener_;
  absl::Mutex mu_;
  std::map<int, CircuitBreaker::State> states_ ABSL_GUARDED_BY(mu_);
  CircuitBreaker::State reported_ ABSL_GUARDED_BY(mu_) =
      CircuitBreaker::State::kClosed;
};

DraftReplicas::Replica::Replica(int number, std::string address,
                                DraftEndpoint endpoint, DraftReplicas& owner)
    : id(number),
      name(std::move(address)),
      peer(absl::StrCat(owner.service_, " ", name), std::move(endpoint),
           owner.breaker_, owner.clock_,
           [number, &states = *owner.states_](CircuitBreaker::State state) {
             states.Set(number, state);
           }) {
  owner.states_->Set(number, CircuitBreaker::State::kClosed);
}

DraftReplicas::DraftReplicas(std::string service,
                             const CircuitBreakerOptions& breaker, Clock clock,
                             CircuitBreaker::Listener on_state,
                             ScopeState scope_state)
    : service_(std::move(service)),
      breaker_(breaker),
      clock_(std::move(clock)),
      scope_state_(scope_state),
      states_(std::make_unique<States>(std::move(on_state))) {}

DraftReplicas::~DraftReplicas() = default;

void DraftReplicas::SetMembers(
    const std::vector<std::string>& names,
    absl::FunctionRef<absl::StatusOr<DraftEndpoint>(size_t)> connect) {
  std::vector<size_t> added;
  int id;
  {
    absl::MutexLock lock(&mu_);
    added = MarkMembers(replicas_, names);
    id = next_id_;
    next_id_ += static_cast<int>(added.size());
  }
  Members<Replica> fresh;
  std::set<std::string> unconnected;
  for (const size_t index : added) {
    const std::string& name = names[index];
    absl::StatusOr<DraftEndpoint> endpoint = connect(index);
    if (!endpoint.ok()) {
      // Every resolution tries again: logged once.
      if (unconnected_.count(name) == 0) {
        FORETOKEN_LOG(kWarning, service_, " ", name,
                      " is not used: ", endpoint.status().message());
      }
      unconnected.insert(name);
      continue;
    }
    fresh.push_back(
        std::make_unique<Replica>(id++, name, *std::move(endpoint), *this));
  }
  unconnected_ = std::move(unconnected);
  Members<Replica> gone;
  {
    absl::MutexLock lock(&mu_);
    std::move(fresh.begin(), fresh.end(), std::back_inserter(replicas_));
    gone = TakeGone(replicas_);
  }
  // Not under the lock: a client waits for the ends of its calls.
  for (const auto& replica : gone) states_->Erase(replica->id);
}

size_t DraftReplicas::size() const {
  absl::MutexLock lock(&mu_);
  return replicas_.size();
}

std::vector<DraftReplicas::Candidate> DraftReplicas::Pin() {
  absl::MutexLock lock(&mu_);
  std::vector<Candidate> candidates;
  const uint64_t count = replicas_.size();
  for (uint64_t i = 0; i < count; ++i) {
    Replica& replica = *replicas_[i];
    if (replica.leaving) continue;
    ++replica.uses;
    candidates.push_back(
        {&replica, replica.leases, (i + count - turn_ % count) % count});
  }
  ++turn_;
  return candidates;
}

void DraftReplicas::Unpin(const std::vector<Candidate>& candidates,
                          Replica* chosen) {
  absl::MutexLock lock(&mu_);
  for (const Candidate& candidate : candidates) --candidate.replica->uses;
  if (chosen == nullptr) return;
  ++chosen->uses;
  ++chosen->leases;
}

std::vector<DraftReplicas::Rank> DraftReplicas::Sort(
    const std::vector<Candidate>& candidates, absl::string_view scope,
    int avoid) const {
  if (scope_state_ == ScopeState::kNone) scope = "";
  const bool bounded = scope_state_ == ScopeState::kCache && !scope.empty();
  int64_t most = std::numeric_limits<int64_t>::max();
  std::vector<bool> up;
  for (const Candidate& candidate : candidates) {
    DraftPeer& peer = candidate.replica->peer;
    up.push_back(peer.up());
    // One that may not be asked has no sessions, and says nothing about load.
    if (bounded && up.back() &&
        peer.breaker().state() == CircuitBreaker::State::kClosed) {
      most = std::min(most, candidate.leases + kScopeSlack +
                                candidate.leases / kScopeSlackShare);
    }
  }
  // Sorted by: avoided, not up, crowded, then by score or by load.
  std::vector<Rank> ranks;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    Replica& replica = *candidate.replica;
    const uint64_t place = scope.empty()
                               ? static_cast<uint64_t>(candidate.leases)
                               : ~RendezvousScore(replica.name, scope);
    ranks.emplace_back(replica.id == avoid, !up[i], candidate.leases > most,
                       place, candidate.turn, &replica);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::optional<DraftReplicas::Lease> DraftReplicas::Choose(
    absl::string_view scope, Use use, int avoid) {
  // Nothing is asked of a replica under the lock: gRPC may run callbacks, which
  // choose replicas themselves, inside any of its functions.
  const std::vector<Candidate> candidates = Pin();
  Replica* chosen = nullptr;
  int64_t epoch = 0;
  for (const Rank& rank : Sort(candidates, scope, avoid)) {
    Replica* const replica = std::get<Replica*>(rank);
    // A replacement that is the same replica is none.
    if (use == Use::kReplace && replica->id == avoid) continue;
    CircuitBreaker& breaker = replica->peer.breaker();
    // Only an ask may probe a half-open breaker, since it alone is certain to
    // learn the outcome.
    const std::optional<int64_t> allowed =
        use == Use::kAsk ? breaker.Allow() : breaker.AllowAhead();
    if (allowed.has_value()) {
      chosen = replica;
      epoch = *allowed;
      break;
    }
    // Left to the first ask: a session that waits for its prompt cannot tell
    // whether the replica answers again.
    if (use == Use::kOpenAhead && breaker.MayProbe()) break;
  }
  Unpin(candidates, chosen);
  if (chosen == nullptr) return std::nullopt;
  return Lease(this, chosen, epoch);
}

DraftReplicas::Lease::~Lease() {
  if (replica_ == nullptr) return;
  // `uses` keeps SetMembers from taking the replica away; from here on it may
  // go.
  absl::MutexLock lock(&owner_->mu_);
  --replica_->uses;
  --replica_->leases;
}

DraftPeer& DraftReplicas::Lease::peer() const { return replica_->peer; }
int DraftReplicas::Lease::id() const { return replica_->id; }

// A fetch and its replica.
class DraftReplicas::HeldFetch final : public Fetch {
 public:
  HeldFetch(Lease lease, std::unique_ptr<Fetch> fetch)
      : lease_(std::move(lease)), fetch_(std::move(fetch)) {}

 private:
  Lease lease_;
  std::unique_ptr<Fetch> fetch_;  // ends first
};

std::unique_ptr<SharedPhrases::Fetch> DraftReplicas::GetPhrases(
    const PhraseQuery& query, Done done) {
  std::optional<Lease> lease = Choose(query.cache_scope, Use::kReplace);
  SharedPhrases* const phrases =
      lease.has_value() ? lease->peer().phrases() : nullptr;
  // At once: the caller goes on without shared phrases.
  if (phrases == nullptr) {
    done({});
    return nullptr;
  }
  std::unique_ptr<Fetch> fetch = phrases->GetPhrases(query, std::move(done));
  if (fetch == nullptr) return nullptr;
  return std::make_unique<HeldFetch>(*std::move(lease), std::move(fetch));
}

}  // namespace foretoken::orchestrator
