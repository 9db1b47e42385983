#include "services/orchestrator/adapters/verifier_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/timed_wait.h"

namespace foretoken::orchestrator {
namespace {

// Weights and numerics are in the fingerprint; the rest is configuration that
// a stream's tokens depend on.
bool SameModel(const VerifierInfo& a, const VerifierInfo& b) {
  return a.numerics_fingerprint == b.numerics_fingerprint &&
         a.vocab_size == b.vocab_size && a.max_positions == b.max_positions &&
         a.tokenizer_fingerprint == b.tokenizer_fingerprint &&
         a.end_tokens == b.end_tokens;
}

}  // namespace

VerifierPool::VerifierPool(const VerifierPoolOptions& options,
                           std::vector<VerifierEndpoint> endpoints)
    : options_(options) {
  {
    absl::MutexLock lock(&mu_);
    for (VerifierEndpoint& endpoint : endpoints) {
      members_.emplace_back().endpoint = std::move(endpoint);
    }
  }
  ProbeAll();
  prober_ = std::thread([this] { ProbeMain(); });
}

VerifierPool::~VerifierPool() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  prober_.join();
}

void VerifierPool::ProbeMain() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(mu_, absl::Condition(&stop_), options_.probe_interval)) {
        return;
      }
    }
    ProbeAll();
  }
}

void VerifierPool::ProbeAll() {
  std::vector<absl::StatusOr<VerifierInfo>> infos(
      members_.size(), absl::UnknownError("not asked"));
  int pending = static_cast<int>(members_.size());
  const absl::Time deadline = MonotonicNow() + options_.probe_timeout;
  for (size_t i = 0; i < infos.size(); ++i) {
    peer(static_cast<int>(i))
        .GetInfo(deadline, [&, i](absl::StatusOr<VerifierInfo> info) {
          absl::MutexLock lock(&mu_);
          infos[i] = std::move(info);
          --pending;
        });
  }
  absl::MutexLock watching(&health_mu_);
  bool changed = false;
  {
    absl::MutexLock lock(&mu_);
    const auto all_done = [&pending] { return pending == 0; };
    mu_.Await(absl::Condition(&all_done));
    for (size_t i = 0; i < infos.size(); ++i) Record(members_[i], infos[i]);
    Elect();
    MergeInfo();
    const auto serves =
        [this](const Member& member)
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return Serves(member); };
    const bool up = std::any_of(members_.begin(), members_.end(), serves);
    changed = std::exchange(any_up_, up) != up;
  }
  if (changed && health_changed_) health_changed_();
}

bool VerifierPool::any_up() const {
  absl::MutexLock lock(&mu_);
  return any_up_;
}

void VerifierPool::WatchHealth(std::function<void()> changed) {
  absl::MutexLock lock(&health_mu_);
  health_changed_ = std::move(changed);
}

void VerifierPool::Record(Member& member,
                          const absl::StatusOr<VerifierInfo>& info) {
  const bool was_up = std::exchange(member.up, info.ok());
  if (info.ok()) {
    member.info = *info;
    member.elsewhere = std::max<int64_t>(0, info->sessions - member.ours);
  }
  // A draining verifier refuses probes and still serves its sessions; a dead
  // one breaks their streams. One that hangs does neither.
  const bool silent = absl::IsDeadlineExceeded(info.status());
  member.silent_probes = silent ? member.silent_probes + 1 : 0;
  if (member.silent_probes >= options_.probes_before_hung &&
      !member.sessions.empty()) {
    FORETOKEN_LOG(kWarning, "verifier ", member.endpoint.name,
                  " hangs: ", member.sessions.size(), " sessions move on");
    for (const auto& session : member.sessions) {
      session->OnFailed(absl::UnavailableError("the verifier hangs"));
    }
    member.sessions.clear();
  }
  if (member.up == was_up) return;
  if (member.up) {
    FORETOKEN_LOG(kInfo, "verifier ", member.endpoint.name, " is up, numerics ",
                  info->numerics_fingerprint);
  } else {
    FORETOKEN_LOG(kWarning, "verifier ", member.endpoint.name,
                  " is down: ", info.status().message());
  }
}

void VerifierPool::Elect() {
  // Number of verifiers that are up and run the model of `candidate`.
  const auto votes =
      [this](const VerifierInfo& candidate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return std::count_if(
            members_.begin(), members_.end(), [&](const Member& member) {
              return member.up && SameModel(*member.info, candidate);
            });
      };
  const bool active = info_.has_value() && votes(*info_) > 0;
  probes_without_active_ = active ? 0 : probes_without_active_ + 1;
  if (!info_.has_value() ||
      probes_without_active_ >= options_.probes_before_election) {
    const Member* elected = nullptr;
    for (const Member& member : members_) {
      if (!member.up) continue;
      if (elected == nullptr || votes(*member.info) > votes(*elected->info)) {
        elected = &member;
      }
    }
    if (elected != nullptr) {
      info_ = elected->info;
      probes_without_active_ = 0;
      FORETOKEN_LOG(kInfo, "the active model is that of verifier ",
                    elected->endpoint.name, ", numerics ",
                    info_->numerics_fingerprint);
    }
  }
  for (Member& member : members_) {
    if (!info_.has_value() || !member.info.has_value()) continue;
    const bool was_in_reserve = member.in_reserve;
    member.in_reserve = !SameModel(*info_, *member.info);
    if (member.up && member.in_reserve && !was_in_reserve) {
      FORETOKEN_LOG(kError, "verifier ", member.endpoint.name,
                    " runs another model, numerics ",
                    member.info->numerics_fingerprint, ": held in reserve");
    }
  }
}

// Computes the limits that hold on every verifier a request may get.
void VerifierPool::MergeInfo() {
  bool first = true;
  for (const Member& member : members_) {
    if (!Serves(member)) continue;
    if (std::exchange(first, false)) {
      info_ = *member.info;
      continue;
    }
    info_->max_tree_nodes =
        std::min(info_->max_tree_nodes, member.info->max_tree_nodes);
    info_->max_rows_per_session = std::min(info_->max_rows_per_session,
                                           member.info->max_rows_per_session);
  }
}

absl::StatusOr<VerifierInfo> VerifierPool::Info() const {
  absl::MutexLock lock(&mu_);
  if (info_.has_value()) return *info_;
  return absl::UnavailableError("no verifier has answered yet");
}

std::optional<VerifierPool::Lease> VerifierPool::Acquire(
    const std::set<int>& excluded) {
  absl::MutexLock lock(&mu_);
  int best = -1;
  const auto before = [](const Member& a, const Member& b) {
    if (a.in_reserve != b.in_reserve) return b.in_reserve;
    if (a.up != b.up) return a.up;
    return a.ours + a.elsewhere < b.ours + b.elsewhere;
  };
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    if (excluded.count(i) > 0) continue;
    if (best < 0 || before(members_[i], members_[best])) best = i;
  }
  if (best < 0) return std::nullopt;
  ++members_[best].ours;
  return Lease(this, best);
}

VerifierPool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      index_(other.index_),
      session_(std::move(other.session_)) {}

VerifierPool::Lease::~Lease() {
  if (pool_ == nullptr) return;
  absl::MutexLock lock(&pool_->mu_);
  Member& member = pool_->members_[index_];
  --member.ours;
  member.sessions.erase(session_);
}

void VerifierPool::Lease::WatchSession(
    std::shared_ptr<VerifyListener> session) {
  absl::MutexLock lock(&pool_->mu_);
  session_ = std::move(session);
  pool_->members_[index_].sessions.insert(session_);
}

bool VerifierPool::Lease::answers() const {
  absl::MutexLock lock(&pool_->mu_);
  return pool_->members_[index_].silent_probes == 0;
}

absl::Duration VerifierPool::Lease::longest_pass() const {
  absl::MutexLock lock(&pool_->mu_);
  const Member& member = pool_->members_[index_];
  double most = 0;
  if (member.info.has_value()) {
    for (const auto& [rows, ms] : member.info->pass_costs) {
      most = std::max(most, ms);
    }
  }
  return absl::Milliseconds(most);
}

// Endpoints never change after construction.
VerifierPeer& VerifierPool::peer(int index) const
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return *members_[index].endpoint.verifier;
}
const std::string& VerifierPool::Lease::name() const
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return pool_->members_[index_].endpoint.name;
}

void VerifierPool::Lease::ReportDown() {
  absl::MutexLock lock(&pool_->mu_);
  pool_->members_[index_].up = false;
}

}  // namespace foretoken::orchestrator
