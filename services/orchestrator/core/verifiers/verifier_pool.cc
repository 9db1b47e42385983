#include "services/orchestrator/core/verifiers/verifier_pool.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"
#include "services/orchestrator/core/rendezvous.h"

namespace foretoken::orchestrator {
namespace {

// A batch of inputs may be spread over both. One of an older version makes no
// embeddings, and gets none of them.
bool SamePooling(const VerifierInfo& a, const VerifierInfo& b) {
  return a.embedding_size == 0 || b.embedding_size == 0 ||
         a.model_pooling == b.model_pooling;
}

// Weights and numerics are in the fingerprint; the rest is configuration that
// a stream's tokens depend on.
bool SameModel(const VerifierInfo& a, const VerifierInfo& b) {
  return a.numerics_fingerprint == b.numerics_fingerprint &&
         a.vocab_size == b.vocab_size && a.max_positions == b.max_positions &&
         a.tokenizer_fingerprint == b.tokenizer_fingerprint &&
         a.end_tokens == b.end_tokens && SamePooling(a, b);
}

// A trial that has lasted for this long is the verifier's to forget.
constexpr absl::Duration kTrialTime = absl::Minutes(2);

// Ignores all answers: a trial succeeds when a pass ends, which probes tell.
class NoListener final : public VerifyListener {
 public:
  void OnOpened(const std::string&) override {}
  void OnPrefilled(PrefillResult) override {}
  void OnRound(RoundResult) override {}
  void OnFailed(absl::Status) override {}
};

constexpr absl::string_view kLeft = "the verifier leaves its sessions waiting";

}  // namespace

absl::Status LeftError() { return absl::UnavailableError(kLeft); }

bool IsLeft(const absl::Status& status) {
  return absl::IsUnavailable(status) && status.message() == kLeft;
}

VerifierPool::VerifierPool(const VerifierPoolOptions& options,
                           std::vector<VerifierEndpoint> endpoints, Clock clock)
    : options_(options),
      clock_(std::move(clock)),
      homes_(options.max_prefix_keys) {
  {
    absl::MutexLock lock(&mu_);
    for (VerifierEndpoint& endpoint : endpoints) {
      members_.push_back(std::make_unique<Member>(
          next_id_++, std::move(endpoint.name), std::move(endpoint.verifier),
          ProgressLimits()));
    }
  }
  ProbeAll(/*timed=*/true);
  prober_ = std::thread([this] { ProbeMain(); });
}

// One question to all members. It outlives the pool where one of them hangs.
struct VerifierPool::Probe {
  explicit Probe(size_t members)
      : infos(members, absl::UnknownError("not asked")),
        pending(static_cast<int>(members)) {}

  absl::Mutex mu;
  std::vector<absl::StatusOr<VerifierInfo>> infos ABSL_GUARDED_BY(mu);
  int pending ABSL_GUARDED_BY(mu);
  bool given_up ABSL_GUARDED_BY(mu) = false;

  bool over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return pending == 0 || given_up;
  }
};

VerifierPool::~VerifierPool() {
  std::shared_ptr<Probe> probe;
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    probe = probe_;
  }
  if (probe != nullptr) {
    // The end does not wait for a verifier that hangs.
    absl::MutexLock lock(&probe->mu);
    probe->given_up = true;
  }
  prober_.join();
}

void VerifierPool::SetMembers(
    const std::vector<std::string>& names,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<VerifierPeer>>(size_t)>
        connect) {
  std::vector<size_t> added;
  int id;
  {
    absl::MutexLock lock(&mu_);
    added = MarkMembers(members_, names);
    id = next_id_;
    next_id_ += static_cast<int>(added.size());
  }
  Members<Member> fresh;
  std::set<std::string> unconnected;
  // Connecting takes no lock: it may resolve names.
  for (const size_t index : added) {
    const std::string& name = names[index];
    absl::StatusOr<std::shared_ptr<VerifierPeer>> verifier = connect(index);
    if (!verifier.ok()) {
      // Every resolution tries again: logged once.
      if (unconnected_.count(name) == 0) {
        FORETOKEN_LOG(kWarning, "verifier ", name,
                      " is not used: ", verifier.status().message());
      }
      unconnected.insert(name);
      continue;
    }
    fresh.push_back(std::make_unique<Member>(id++, name, *std::move(verifier),
                                             ProgressLimits()));
  }
  unconnected_ = std::move(unconnected);
  absl::MutexLock lock(&mu_);
  if (!fresh.empty()) probe_now_ = true;
  std::move(fresh.begin(), fresh.end(), std::back_inserter(members_));
}

ProgressOptions VerifierPool::ProgressLimits() const {
  ProgressOptions limits;
  limits.least_limit = options_.least_silence;
  // The prober waits for the slowest answer.
  limits.longest_step = options_.probe_interval + options_.probe_timeout;
  return limits;
}

void VerifierPool::ProbeMain() {
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || probe_now_;
  };
  absl::Time next = clock_() + options_.probe_interval;
  while (true) {
    bool timed;
    Members<Member> gone;  // destroyed without the lock: calls have to end
    {
      absl::MutexLock lock(&mu_);
      timed = !AwaitFor(mu_, absl::Condition(&due), next - clock_());
      if (stop_) return;
      probe_now_ = false;
      gone = TakeGone(members_);
    }
    for (const auto& member : gone) {
      FORETOKEN_LOG(kInfo, "verifier ", member->name, " is gone");
    }
    gone.clear();
    ProbeAll(timed);
    // A probe of new members does not move the clock of the others.
    if (timed) next = clock_() + options_.probe_interval;
  }
}

void VerifierPool::ProbeAll(bool timed) {
  std::vector<Member*> probed;
  std::shared_ptr<Probe> probe;
  {
    absl::MutexLock lock(&mu_);
    if (stop_) return;
    // Plain pointers: members are destroyed by the prober alone, which runs
    // this.
    for (const auto& member : members_) probed.push_back(member.get());
    probe = probe_ = std::make_shared<Probe>(probed.size());
  }
  const absl::Time deadline = clock_() + options_.probe_timeout;
  for (size_t i = 0; i < probed.size(); ++i) {
    probed[i]->verifier->GetInfo(deadline,
                                 [probe, i](absl::StatusOr<VerifierInfo> info) {
                                   absl::MutexLock lock(&probe->mu);
                                   probe->infos[i] = std::move(info);
                                   --probe->pending;
                                 });
  }
  std::vector<absl::StatusOr<VerifierInfo>> infos;
  {
    // Without health_mu_: WatchHealth must not wait for a probe's timeout.
    absl::MutexLock lock(&probe->mu);
    probe->mu.Await(absl::Condition(probe.get(), &Probe::over));
    // Given up by the destructor: answers that are still to come keep the probe
    // alive by their own references.
    if (probe->pending > 0) return;
    infos = std::move(probe->infos);
  }
  {
    // Held from the change until it is reported, so that WatchHealth returns
    // when no report to its predecessor is due. Members may be leaving by now,
    // but only the prober, which runs this, takes them out.
    absl::MutexLock watching(&health_mu_);
    bool changed = false;
    {
      absl::MutexLock lock(&mu_);
      for (size_t i = 0; i < infos.size(); ++i) Record(*probed[i], infos[i]);
      Elect(timed);
      MergeInfo();
      const bool up = std::any_of(
          members_.begin(), members_.end(),
          [this](const auto& member) { return Works(*member); });
      changed = std::exchange(any_up_, up) != up;
    }
    if (changed && health_changed_) health_changed_();
  }
  TryAvoided();
}

void VerifierPool::TryAvoided() {
  // Sessions open and close without the lock: calls begin and end with them.
  std::vector<std::unique_ptr<VerifySession>> ended;
  std::vector<std::pair<Member*, SessionRequest>> tried;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& each : members_) {
      Member& member = *each;
      if (!member.progress.avoided()) {
        ended.push_back(std::move(member.trial));
        continue;
      }
      if (!member.up || !member.progress.MayTry(clock_())) continue;
      member.progress.OnTrial(clock_());
      ended.push_back(std::move(member.trial));
      SessionRequest request;
      request.tokens = {0};
      request.prompt_length = 1;
      request.max_length = 2;
      request.deadline = clock_() + kTrialTime;
      request.numerics_fingerprint = member.info->numerics_fingerprint;
      request.request_id = "trial";
      tried.emplace_back(&member, std::move(request));
    }
  }
  ended.clear();
  for (auto& [member, request] : tried) {
    auto trial = member->verifier->Open(std::move(request),
                                        std::make_shared<NoListener>());
    if (trial.ok()) member->trial = *std::move(trial);
  }
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
  member.fault = absl::IsFailedPrecondition(info.status()) ? info.status()
                                                           : absl::OkStatus();
  if (info.ok()) {
    member.info = *info;
    // Sessions of other orchestrators count as load as well; ours are known to
    // the minute, theirs only as of the probe.
    member.elsewhere = std::max<int64_t>(0, info->sessions - member.uses);
  }
  // A draining verifier refuses probes and still serves its sessions; a dead
  // one breaks their streams. One that hangs does neither.
  const bool silent = absl::IsDeadlineExceeded(info.status());
  member.silent_probes = silent ? member.silent_probes + 1 : 0;
  // OnFailed wakes the request's thread and takes only the mailbox's lock, so
  // mu_ may be held.
  if (member.silent_probes >= options_.probes_before_hung &&
      !member.sessions.empty()) {
    FORETOKEN_LOG(kWarning, "verifier ", member.name,
                  " hangs: ", member.sessions.size(), " sessions move on");
    for (const auto& session : member.sessions) {
      session->listener->OnFailed(absl::UnavailableError("the verifier hangs"));
    }
    member.sessions.clear();
  }
  WatchProgress(member, info);
  if (member.up == was_up) return;
  if (member.up) {
    FORETOKEN_LOG(kInfo, "verifier ", member.name, " is up");
  } else {
    FORETOKEN_LOG(kWarning, "verifier ", member.name,
                  " is down: ", info.status().message());
  }
}

void VerifierPool::WatchProgress(Member& member,
                                 const absl::StatusOr<VerifierInfo>& info) {
  if (!info.ok()) {
    member.progress.OnNoProbe();
    return;
  }
  const bool was_avoided = member.progress.avoided();
  member.progress.OnProbe(clock_(), info->passes, info->silence_limit);
  if (was_avoided && !member.progress.avoided()) {
    FORETOKEN_LOG(kInfo, "verifier ", member.name, " ends passes again");
  }
  size_t left = 0;
  for (auto at = member.sessions.begin(); at != member.sessions.end();) {
    if (!member.progress.IsLeft((*at)->wait)) {
      ++at;
      continue;
    }
    (*at)->listener->OnFailed(LeftError());
    at = member.sessions.erase(at);
    ++left;
  }
  if (left == 0) return;
  FORETOKEN_LOG(kWarning, "verifier ", member.name,
                " answers probes but ends no pass: ", left,
                " sessions move on");
}

void VerifierPool::Elect(bool timed) {
  // Number of verifiers that are up and run the model of `candidate`.
  const auto votes =
      [this](const VerifierInfo& candidate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return std::count_if(
            members_.begin(), members_.end(), [&](const auto& member) {
              return Works(*member) && SameModel(*member->info, candidate);
            });
      };
  const bool active = info_.has_value() && votes(*info_) > 0;
  // Probes of new members may follow each other closely: not counted, so that
  // an election still takes some intervals.
  if (active) {
    probes_without_active_ = 0;
  } else if (timed) {
    ++probes_without_active_;
  }
  if (!info_.has_value() ||
      probes_without_active_ >= options_.probes_before_election) {
    const Member* elected = nullptr;
    for (const auto& member : members_) {
      if (!Works(*member)) continue;
      // More votes win; of equals the first in order, which is the operator's.
      if (elected == nullptr || votes(*member->info) > votes(*elected->info)) {
        elected = member.get();
      }
    }
    if (elected != nullptr) {
      info_ = elected->info;
      probes_without_active_ = 0;
      FORETOKEN_LOG(
          kInfo, "the active model is that of verifier ", elected->name,
          options_.logs_numerics
              ? absl::StrCat(", numerics ", info_->numerics_fingerprint)
              : "");
    }
  }
  for (const auto& each : members_) {
    Member& member = *each;
    if (!info_.has_value() || !member.info.has_value()) continue;
    const bool was_in_reserve = member.in_reserve;
    member.in_reserve = !SameModel(*info_, *member.info);
    if (member.up && member.in_reserve && !was_in_reserve) {
      FORETOKEN_LOG(kError, "verifier ", member.name,
                    " runs another model, numerics ",
                    member.info->numerics_fingerprint, ": held in reserve");
    }
  }
}

// Computes the limits that hold on every verifier a request may get.
void VerifierPool::MergeInfo() {
  bool first = true;
  for (const auto& each : members_) {
    const Member& member = *each;
    if (!Serves(member)) continue;
    if (std::exchange(first, false)) {
      info_ = *member.info;
      continue;
    }
    info_->max_tree_nodes =
        std::min(info_->max_tree_nodes, member.info->max_tree_nodes);
    info_->max_rows_per_session = std::min(info_->max_rows_per_session,
                                           member.info->max_rows_per_session);
    // One of an older version makes none, and they go to the others.
    if (info_->embedding_size == 0) {
      info_->embedding_size = member.info->embedding_size;
      info_->model_pooling = member.info->model_pooling;
    }
  }
}

absl::StatusOr<VerifierInfo> VerifierPool::Info() const {
  absl::MutexLock lock(&mu_);
  FORETOKEN_RETURN_IF_ERROR(Fault());
  if (info_.has_value()) return *info_;
  return absl::UnavailableError("no verifier has answered yet");
}

absl::Status VerifierPool::Fault() const {
  absl::Status fault;
  for (const auto& member : members_) {
    if (member->leaving) continue;
    // One healthy member is enough: requests go there.
    if (member->fault.ok()) return absl::OkStatus();
    fault = member->fault;
  }
  return fault;
}

double VerifierPool::SlackOf(int depth, int64_t load) const {
  const double whole =
      std::max(static_cast<double>(options_.prefix_slack),
               options_.prefix_slack_share * static_cast<double>(load));
  // A short common prefix saves little, so it is worth less imbalance than a
  // long one.
  const double deep = std::max(1.0, static_cast<double>(options_.prefix_slack));
  return whole * std::min(1.0, static_cast<double>(depth) / deep);
}

VerifierPool::Member* VerifierPool::Choose(const std::set<int>& excluded,
                                           const PrefixKeys& keys,
                                           bool embeds) {
  const auto load = [](const Member& member) {
    return member.uses + member.elsewhere;
  };
  const auto out = [&](const Member& member) {
    // One that was never probed may turn out to make them.
    const bool refuses =
        embeds && member.info.has_value() && member.info->embedding_size == 0;
    return excluded.count(member.id) > 0 || member.progress.avoided() ||
           refuses;
  };
  // The lower the better: the rest is a matter of load.
  const auto rank = [](const Member& member) {
    return std::make_tuple(member.in_reserve, !member.up, member.leaving);
  };
  Member* best = nullptr;
  for (const auto& each : members_) {
    Member& member = *each;
    if (out(member)) continue;
    if (best == nullptr || std::make_tuple(rank(member), load(member)) <
                               std::make_tuple(rank(*best), load(*best))) {
      best = &member;
    }
  }
  if (best == nullptr) return nullptr;
  const PrefixHomes::Home known = homes_.Find(keys);
  // keys[0] is the scope's: a text without a whole page has nothing to reuse.
  const std::string first_page = keys.size() > 1 ? absl::StrCat(keys[1]) : "";
  Member* home = nullptr;
  Member* agreed = nullptr;  // where all orchestrators would begin
  uint64_t agreed_score = 0;
  for (const auto& each : members_) {
    Member& member = *each;
    if (out(member) || rank(member) != rank(*best)) continue;
    if (member.id == known.member) home = &member;
    if (first_page.empty()) continue;
    // By rendezvous hashing, so that orchestrators that share no state send the
    // same first page to the same verifier.
    const uint64_t score = RendezvousScore(member.name, first_page);
    if (agreed == nullptr || score > agreed_score) {
      agreed = &member;
      agreed_score = score;
    }
  }
  int depth = known.depth;
  if (agreed != nullptr && (home == nullptr || depth == 0)) {
    home = agreed;
    depth = 1;
  }
  if (home == nullptr) return best;
  const auto excess = static_cast<double>(load(*home) - load(*best));
  return excess <= SlackOf(depth, load(*best)) ? home : best;
}

std::optional<VerifierPool::Lease> VerifierPool::Acquire(
    const std::set<int>& excluded, const PrefixKeys& keys, bool embeds) {
  absl::MutexLock lock(&mu_);
  Member* const chosen = Choose(excluded, keys, embeds);
  if (chosen == nullptr) return std::nullopt;
  ++chosen->uses;
  // Noted now, so that requests that come together go together.
  homes_.Note(keys, chosen->id);
  return Lease(this, chosen);
}

bool VerifierPool::AllIn(const std::set<int>& ids) const {
  absl::MutexLock lock(&mu_);
  return !members_.empty() &&
         std::all_of(members_.begin(), members_.end(), [&](const auto& member) {
           return ids.count(member->id) > 0;
         });
}

bool VerifierPool::IsReplaced(const std::string& numerics_fingerprint) const {
  absl::MutexLock lock(&mu_);
  if (!info_.has_value() ||
      info_->numerics_fingerprint == numerics_fingerprint) {
    return false;
  }
  return std::none_of(
      members_.begin(), members_.end(), [&](const auto& member) {
        return Works(*member) &&
               member->info->numerics_fingerprint == numerics_fingerprint;
      });
}

size_t VerifierPool::size() const {
  absl::MutexLock lock(&mu_);
  return members_.size();
}

VerifierPool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      member_(other.member_),
      session_(std::move(other.session_)) {}

VerifierPool::Lease::~Lease() {
  if (pool_ == nullptr) return;
  absl::MutexLock lock(&pool_->mu_);
  --member_->uses;
  member_->sessions.erase(session_);
}

void VerifierPool::Lease::WatchSession(
    std::shared_ptr<VerifyListener> session) {
  session_ = std::make_shared<Watched>();
  session_->listener = std::move(session);
  absl::MutexLock lock(&pool_->mu_);
  member_->sessions.insert(session_);
}

bool VerifierPool::Lease::answers() const {
  absl::MutexLock lock(&pool_->mu_);
  return member_->silent_probes == 0;
}

int32_t VerifierPool::Lease::grammar_version() const {
  absl::MutexLock lock(&pool_->mu_);
  return member_->info.has_value() ? member_->info->grammar_version : 0;
}

absl::Duration VerifierPool::Lease::longest_pass() const {
  absl::MutexLock lock(&pool_->mu_);
  double most = 0;
  if (member_->info.has_value()) {
    for (const auto& [rows, ms] : member_->info->pass_costs) {
      most = std::max(most, ms);
    }
  }
  return absl::Milliseconds(most);
}

void VerifierPool::Lease::ReportDown() {
  absl::MutexLock lock(&pool_->mu_);
  member_->up = false;
}

}  // namespace foretoken::orchestrator
