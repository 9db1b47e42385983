#include "services/crest/core/datastore.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"

namespace foretoken::crest {

Datastore::Datastore(std::string name, std::unique_ptr<VersionOrigin> origin,
                     const DatastoreOptions& options,
                     DatastoreObserver& observer, Clock clock)
    : name_(std::move(name)),
      origin_(std::move(origin)),
      options_(options),
      observer_(observer),
      clock_(std::move(clock)) {}

Datastore::~Datastore() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  // The watcher writes current_ and retired_; afterwards this thread owns both.
  if (watcher_.joinable()) watcher_.join();
  // Release it while all members live: a row worker may still report an outage.
  std::shared_ptr<const ServedVersion> last;
  {
    absl::MutexLock lock(&mu_);
    last.swap(current_);
  }
  last.reset();
  retired_.clear();
}

absl::Status Datastore::LoadNow() {
  const absl::Status status = Check();
  Note(status);
  return status;
}

void Datastore::Watch() {
  watcher_ = std::thread([this] { Main(); });
}

void Datastore::Poke() {
  absl::MutexLock lock(&mu_);
  poked_ = true;
}

std::shared_ptr<const ServedVersion> Datastore::current() const {
  absl::MutexLock lock(&mu_);
  return current_;
}

absl::StatusOr<std::shared_ptr<const ServedVersion>> Datastore::Serving()
    const {
  std::shared_ptr<const ServedVersion> served = current();
  if (served != nullptr) return served;
  FORETOKEN_RETURN_IF_ERROR(state());
  // Empty, unless a version was loaded between the two calls.
  return current();
}

absl::Status Datastore::state() const {
  absl::MutexLock lock(&mu_);
  if (current_ == nullptr) {
    if (empty_) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("datastore \"", name_, "\" serves nothing yet: ",
                     problem_.ok() ? absl::string_view("it is being loaded")
                                   : problem_.message()));
  }
  if (current_->answers()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("datastore \"", name_, "\": PostgreSQL does not answer"));
}

void Datastore::Main() {
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || poked_;
  };
  while (true) {
    Note(Check());
    FreeRetired();
    absl::MutexLock lock(&mu_);
    AwaitFor(mu_, absl::Condition(&woken), options_.watch_interval);
    if (stop_) return;
    poked_ = false;
  }
}

absl::Status Datastore::Check() {
  const absl::StatusOr<VersionInfo> published = origin_->Current();
  if (!published.ok()) {
    SetEmpty(absl::IsNotFound(published.status()));
    return published.status();
  }
  const VersionInfo& info = *published;
  const std::shared_ptr<const ServedVersion> served = current();
  // The usual case: one small query, and nothing changes.
  if (served != nullptr && served->info.version == info.version) {
    return absl::OkStatus();
  }
  // A load may take minutes and fail for good, so the same version is not tried
  // in every interval. Another version is tried at once.
  if (info.version == failed_version_ && clock_() < next_load_) {
    return failure_;
  }
  if (info.version != failed_version_) backoff_ = options_.watch_interval;
  absl::Status status = CheckTokenizerOf(info);
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<ServedVersion>> loaded = origin_->Load(info);
    if (loaded.ok()) {
      Switch(*std::move(loaded));
      failed_version_ = 0;
      return absl::OkStatus();
    }
    status = loaded.status();
  }
  SetEmpty(false);
  failed_version_ = info.version;
  failure_ = Annotate(status, absl::StrCat("version ", info.version));
  next_load_ = clock_() + backoff_;
  backoff_ = std::min(2 * backoff_, options_.most_backoff);
  observer_.OnFailedLoad(name_);
  return failure_;
}

absl::Status Datastore::CheckTokenizerOf(const VersionInfo& info) const {
  if (options_.tokenizer.has_value()) {
    return CheckTokenizer(info.meta, *options_.tokenizer);
  }
  const std::shared_ptr<const ServedVersion> served = current();
  if (served == nullptr) return absl::OkStatus();
  // Without a tokenizer by configuration the first version decides: a switch
  // must not change the meaning of ids under open sessions.
  return CheckTokenizer(info.meta, served->info.meta.tokenizer_fingerprint);
}

void Datastore::SetEmpty(bool empty) {
  {
    absl::MutexLock lock(&mu_);
    // A version that is served stays, even if the store has become empty.
    if (empty_ == empty || current_ != nullptr) return;
    empty_ = empty;
  }
  observer_.OnStateChange(name_, state().ok());
}

void Datastore::Switch(std::unique_ptr<ServedVersion> loaded) {
  if (loaded->rows != nullptr) {
    loaded->rows->SetListener(
        [this] { observer_.OnStateChange(name_, state().ok()); });
  }
  std::shared_ptr<const ServedVersion> next = std::move(loaded);
  const VersionInfo& info = next->info;
  std::shared_ptr<const ServedVersion> old = next;
  {
    absl::MutexLock lock(&mu_);
    current_.swap(old);
    empty_ = false;
  }
  FORETOKEN_LOG(kInfo, "datastore ", name_, ": version ", info.version,
                " replaces ", old == nullptr ? 0 : old->info.version, ", ",
                info.meta.entries,
                next->other == nullptr ? " n-grams, " : " entries, ",
                next->in_memory() ? "in memory" : "through PostgreSQL");
  // Requests may still hold it; FreeRetired destroys it on this thread, which
  // serves no request.
  if (old != nullptr) retired_.push_back(std::move(old));
  observer_.OnSwitch(name_, info);
  observer_.OnStateChange(name_, state().ok());
}

void Datastore::FreeRetired() {
  // No new reference can be taken to a version that is not current.
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(),
                                [](const auto& version) {
                                  return version.use_count() == 1;
                                }),
                 retired_.end());
}

void Datastore::Note(const absl::Status& status) {
  bool serves = false;
  bool empty = false;
  {
    absl::MutexLock lock(&mu_);
    // Log a change of state, not every check that finds the same.
    if (status == problem_) return;
    problem_ = status;
    serves = current_ != nullptr;
    empty = empty_;
  }
  if (status.ok()) {
    FORETOKEN_LOG(kInfo, "datastore ", name_, ": up to date again");
  } else if (empty) {
    FORETOKEN_LOG(kInfo, "datastore ", name_, " is empty: ", status.ToString());
  } else {
    FORETOKEN_LOG(kWarning, "datastore ", name_,
                  serves ? " keeps its version: " : " serves nothing: ",
                  status.ToString());
  }
}

}  // namespace foretoken::crest
