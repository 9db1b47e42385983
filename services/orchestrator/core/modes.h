// The drafters that a request's mode stands for.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MODES_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MODES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/speculation/modes.h"
#include "services/orchestrator/core/round_drafting.h"

namespace foretoken::orchestrator {

// The drafting services that this orchestrator was given. Thread-safe.
class DraftServices {
 public:
  virtual ~DraftServices() = default;

  virtual bool has_trie_drafter() const = 0;
  virtual bool has_draft_worker() const = 0;
  virtual bool has_crest() const = 0;

  // A new request's session, of a service that is there. `mode` is what the
  // service is asked to run.
  virtual std::unique_ptr<DraftSource> TrieDrafter(DrafterId id,
                                                   const Mode& mode) = 0;
  virtual std::unique_ptr<DraftSource> DraftWorker(DrafterId id,
                                                   const Mode& mode) = 0;
  // Takes what a draft worker's pool gains: drafts() is false.
  virtual std::unique_ptr<DraftSource> PhraseKeeper(const Mode& mode) = 0;
  // An empty name is the configured datastore.
  virtual std::unique_ptr<DraftSource> Crest(const std::string& datastore) = 0;
};

struct ModeContext {
  DraftServices* services = nullptr;  // null: none
  TreeLimits limits;
  Clock clock = SystemClock();
};

struct ModeSources {
  DraftSources sources;
  bool economical = false;  // as RoundDrafting means it
};

// `off` has none. InvalidArgument, by parameter, where the mode does not fit
// the limits; Unimplemented, by name, for one whose service is not there.
absl::StatusOr<ModeSources> MakeSources(const Mode& mode,
                                        const ModeContext& context);

// The names of the modes that MakeSources builds, in the order of the table.
std::vector<std::string> ServedModes(const DraftServices* services);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MODES_H_
