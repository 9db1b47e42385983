// A named datastore: the version it serves, and the thread that replaces it.
//
// The watcher asks the origin, at every interval, what is published. A version
// other than the served one is loaded beside it, checked, and takes its place
// by the switch of one pointer; look-ups under way keep the one they began
// with. A version that does not load leaves the old one serving and is tried
// again with back-off. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_CORE_DATASTORE_H_
#define FORETOKEN_SERVICES_CREST_CORE_DATASTORE_H_

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/digest.h"
#include "services/crest/core/version_origin.h"

namespace foretoken::crest {

// What happens to datastores, for metrics and health. Called by watchers and
// by row workers, with no lock held; thread-safe.
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
  // Versions must belong to this tokenizer; none: to that of the first version
  // that was served.
  std::optional<Sha256Digest> tokenizer;
};

class Datastore {
 public:
  // `observer` must outlive the datastore.
  Datastore(std::string name, std::unique_ptr<VersionOrigin> origin,
            const DatastoreOptions& options, DatastoreObserver& observer);
  // No look-up may be under way.
  ~Datastore();
  Datastore(const Datastore&) = delete;
  Datastore& operator=(const Datastore&) = delete;

  // Loads what is published, in the caller's thread. To be called before
  // Watch; OK where something is served afterwards.
  absl::Status LoadNow();
  // Starts the watcher, once.
  void Watch();
  // Makes the watcher look at once.
  void Poke();

  // Null where nothing is served yet.
  std::shared_ptr<const ServedVersion> current() const;
  // OK while look-ups can be answered, else Unavailable with the reason.
  absl::Status state() const;

  const std::string& name() const { return name_; }
  VersionOrigin& origin() { return *origin_; }

 private:
  void Main();
  // One look at the origin; loads and switches where there is something new.
  absl::Status Check();
  absl::Status CheckTokenizerOf(const VersionInfo& info) const;
  void Switch(std::unique_ptr<ServedVersion> loaded);
  // Old versions go once nobody uses them: on this thread, since to unmap an
  // index or end a connection may take a while.
  void FreeRetired();
  // Logs a problem when it begins and when it ends, not at every look.
  void Note(const absl::Status& status);

  const std::string name_;
  const std::unique_ptr<VersionOrigin> origin_;
  const DatastoreOptions options_;
  DatastoreObserver& observer_;

  // The watcher's (LoadNow's before it runs).
  std::vector<std::shared_ptr<const ServedVersion>> retired_;
  int64_t failed_version_ = 0;  // did not load, for the reason of failure_
  absl::Status failure_;
  absl::Duration backoff_ = absl::ZeroDuration();
  absl::Time next_load_ = absl::InfinitePast();

  mutable absl::Mutex mu_;
  std::shared_ptr<const ServedVersion> current_ ABSL_GUARDED_BY(mu_);
  absl::Status problem_ ABSL_GUARDED_BY(mu_);  // of the last look
  bool poked_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;

  std::thread watcher_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_DATASTORE_H_
