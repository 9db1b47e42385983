// A named datastore: the version it serves, and the thread that replaces it.
//
// The watcher polls the origin for the published version. A version other than
// the served one is loaded beside it, validated, and replaces it by swapping
// one pointer; look-ups in progress keep the version they started with. If a
// version fails to load, the old one keeps serving and the load is retried
// with back-off.
//
// A datastore of which nothing is published yet is empty: it answers every
// look-up with no n-gram, so that a service can start before its data exists.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_CORE_DATASTORE_H_
#define FORETOKEN_SERVICES_CREST_CORE_DATASTORE_H_

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "services/crest/core/version_origin.h"

namespace foretoken::crest {

// Observes datastores, for metrics and health. Called by watchers and row
// workers, with no lock held; must be thread-safe.
class DatastoreObserver {
 public:
  virtual ~DatastoreObserver() = default;
  virtual void OnSwitch(const std::string& name, const VersionInfo& now) = 0;
  virtual void OnFailedLoad(const std::string& name) = 0;
  // `ready`: state() is OK. May be called without a change.
  virtual void OnStateChange(const std::string& name, bool ready) = 0;
};

struct DatastoreOptions {
  absl::Duration watch_interval = absl::Seconds(1);
  absl::Duration most_backoff = absl::Seconds(30);  // of failed loads
  // The tokenizer that versions must belong to; unset: that of the first
  // version served.
  std::optional<Sha256Digest> tokenizer;
};

class Datastore {
 public:
  // `observer` must outlive the datastore.
  Datastore(std::string name, std::unique_ptr<VersionOrigin> origin,
            const DatastoreOptions& options, DatastoreObserver& observer,
            Clock clock = MonotonicClock());
  // No look-up may be under way.
  ~Datastore();
  Datastore(const Datastore&) = delete;
  Datastore& operator=(const Datastore&) = delete;

  // Loads the published version in the caller's thread; call it before Watch.
  // OK if a version is then served.
  absl::Status LoadNow();
  // Starts the watcher, once.
  void Watch();
  // Makes the watcher check at once.
  void Poke();

  // Null if nothing is served yet.
  std::shared_ptr<const ServedVersion> current() const;
  // The current version; null for an empty datastore. If there is no version
  // for another reason, the error of state().
  absl::StatusOr<std::shared_ptr<const ServedVersion>> Serving() const;
  // OK while look-ups can be answered, else Unavailable with the reason.
  absl::Status state() const;

  const std::string& name() const { return name_; }
  VersionOrigin& origin() { return *origin_; }

 private:
  void Main();
  // Asks the origin once; loads and switches to a new version.
  absl::Status Check();
  absl::Status CheckTokenizerOf(const VersionInfo& info) const;
  // Sets empty_ and tells of a change of state().
  void SetEmpty(bool empty);
  void Switch(std::unique_ptr<ServedVersion> loaded);
  // Frees old versions that are no longer in use, on this thread: unmapping an
  // index or closing a connection may take long.
  void FreeRetired();
  // Logs a problem when it begins and when it ends, not at every check.
  void Note(const absl::Status& status);

  const std::string name_;
  const std::unique_ptr<VersionOrigin> origin_;
  const DatastoreOptions options_;
  DatastoreObserver& observer_;
  const Clock clock_;

  // Owned by the watcher (before it runs, by LoadNow).
  std::vector<std::shared_ptr<const ServedVersion>> retired_;
  int64_t failed_version_ = 0;  // version that failed to load, with failure_
  absl::Status failure_;
  absl::Duration backoff_ = absl::ZeroDuration();
  absl::Time next_load_ = absl::InfinitePast();

  mutable absl::Mutex mu_;
  std::shared_ptr<const ServedVersion> current_ ABSL_GUARDED_BY(mu_);
  absl::Status problem_ ABSL_GUARDED_BY(mu_);  // of the last check
  // The origin said that nothing is published; until a version is loaded, or
  // does not load, or the origin does not answer.
  bool empty_ ABSL_GUARDED_BY(mu_) = false;
  bool poked_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;

  std::thread watcher_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_DATASTORE_H_
