// VerifierPool: the verifiers that this orchestrator may use, which of them are
// up, and which is to be asked first.
//
// A prober asks every verifier for its info about once a second: that gives
// their health, their load from elsewhere, and what model they run. All must
// run the same model; one that does not is left out, aloud.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_VERIFIER_POOL_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_VERIFIER_POOL_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/speculation/verifier_peer.h"

namespace foretoken::orchestrator {

struct VerifierEndpoint {
  std::string name;  // for logs
  // Shared with its owner, where that is not the pool alone.
  std::shared_ptr<VerifierPeer> verifier;
};

struct VerifierPoolOptions {
  absl::Duration probe_interval = absl::Seconds(1);
  absl::Duration probe_timeout = absl::Seconds(2);
};

class VerifierPool {
 public:
  // The constructor probes once.
  VerifierPool(const VerifierPoolOptions& options,
               std::vector<VerifierEndpoint> endpoints);
  ~VerifierPool();

  // Whether any verifier is up.
  bool any_up() const;
  // Calls `changed` whenever any_up() changes, until it is replaced; no call is
  // under way when WatchHealth returns.
  void WatchHealth(std::function<void()> changed);

  // What the verifiers run, as of the last probe: the least of their limits,
  // and what passes cost on the first that is up. Unavailable until one has
  // answered.
  absl::StatusOr<VerifierInfo> Info() const;

  // One use of one verifier; counts as load until destroyed.
  class Lease {
   public:
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    VerifySessions& sessions() const { return pool_->peer(index_); }
    const std::string& name() const;
    int index() const { return index_; }
    // The call failed as if the verifier was gone: it is asked last until it
    // has answered a probe.
    void ReportDown();

   private:
    friend class VerifierPool;
    Lease(VerifierPool* pool, int index) : pool_(pool), index_(index) {}
    VerifierPool* pool_;
    int index_;
  };

  // The least loaded verifier that is up, else one that may be up again, out of
  // those not in `excluded`; nothing when all are excluded.
  std::optional<Lease> Acquire(const std::set<int>& excluded);

  int size() const { return static_cast<int>(members_.size()); }

 private:
  struct Member {
    VerifierEndpoint endpoint;
    std::optional<VerifierInfo> info;  // of the last probe
    bool up = false;
    bool mismatched = false;  // runs another model
    int64_t ours = 0;         // leases
    int64_t elsewhere = 0;    // sessions of others, at the last probe
  };

  void ProbeMain();
  void ProbeAll();
  VerifierPeer& peer(int index) const;
  void Record(Member& member, const absl::StatusOr<VerifierInfo>& info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MergeInfo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const VerifierPoolOptions options_;
  absl::Mutex health_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  std::function<void()> health_changed_ ABSL_GUARDED_BY(health_mu_);
  mutable absl::Mutex mu_;
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);
  std::optional<VerifierInfo> info_ ABSL_GUARDED_BY(mu_);
  bool any_up_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread prober_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_VERIFIER_POOL_H_
