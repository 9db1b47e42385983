// ConstraintCompiler: the grammars of constraints, compiled on a thread of its
// own, since a constraint may take seconds.
//
// Callers take turns of one compilation, by weight; a full queue evicts the
// newest job of the caller that fills it (common/base/request_pool.h). Jobs
// with the constraint that has just been compiled all end with it. The thread
// has a lower priority than its process: a pass waits for the slowest of the
// compute threads. One compilation at a time also bounds their memory.
//
// Thread-safe. mu_ is acquired before the locks of the pool and of the cache;
// none of them is held while a job's function runs.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_CONSTRAINT_COMPILER_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_CONSTRAINT_COMPILER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/fair_queue.h"
#include "common/base/request_pool.h"
#include "common/grammar/constraint.h"
#include "common/grammar/grammar.h"
#include "common/grammar/grammar_cache.h"

namespace foretoken::verifier {

struct ConstraintCompilerOptions {
  grammar::GrammarCacheOptions grammars;
  // One that others in this process use, too, in place of one with `grammars`;
  // may be null.
  std::shared_ptr<grammar::GrammarCache> cache;
  FairQueueLimits waiting = {.items = 256, .bytes = int64_t{256} << 20};
  // Maximum wait for a turn. Less than the time after which an orchestrator
  // takes a verifier that opens no session for lost: six times its
  // --connect-timeout, 30 s by default.
  absl::Duration max_wait = absl::Seconds(10);
  // Called on the thread before it compiles; for tests.
  std::function<void(const Constraint&)> before_compile;
};

class ConstraintCompiler {
 public:
  using Compiled = absl::StatusOr<std::shared_ptr<const grammar::Grammar>>;
  using Done = std::function<void(const Compiled&)>;
  using Ticket = uint64_t;

  struct Job {
    std::string caller;
    double weight = 1;      // of the caller, above 0
    Constraint constraint;  // not empty
    int64_t bytes = 0;      // that the job holds while it waits
    absl::Time deadline = absl::InfiniteFuture();
  };

  ConstraintCompiler(const ConstraintCompilerOptions& options, Clock clock);
  // Ends the jobs that are left with Unavailable, then waits for the
  // compilation in progress.
  ~ConstraintCompiler();
  ConstraintCompiler(const ConstraintCompiler&) = delete;
  ConstraintCompiler& operator=(const ConstraintCompiler&) = delete;

  // The grammar if it is there, else null; waits for nothing.
  std::shared_ptr<const grammar::Grammar> Find(const Constraint& constraint);

  // Compiles the job's constraint. `done` is called once, never from inside
  // Compile or Cancel, unless the job is cancelled before: with the grammar, or
  //   InvalidArgument    Compile refuses the constraint, for whatever reason
  //   DeadlineExceeded   the deadline passed while the job waited
  //   ResourceExhausted  others displaced it, or it waited for max_wait
  //   the status of FailAll, or Unavailable from the destructor.
  // Errors returned here are InvalidArgument, for a constraint that is too
  // large, and ResourceExhausted, for a full queue; `done` is not called then.
  absl::StatusOr<Ticket> Compile(Job job, Done done) ABSL_LOCKS_EXCLUDED(mu_);

  // Forgets the job and destroys its function, here; a call of the function
  // that has begun goes on. Waits for nothing: a compilation in progress ends
  // by itself.
  void Cancel(Ticket ticket) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends all jobs with `status`, in the calling thread, those with a
  // compilation in progress included.
  void FailAll(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    std::shared_ptr<const Job> job;  // shared: its compilation may outlive it
    Done done;
    RequestPool::Ticket waiting = RequestPool::kNotWaiting;
  };

  // On the thread: the job's turn has come.
  void Run(Ticket ticket) ABSL_LOCKS_EXCLUDED(mu_);
  // On the pool's watcher: it has left the queue without a turn.
  void Refuse(Ticket ticket, const absl::Status& reason)
      ABSL_LOCKS_EXCLUDED(mu_);
  Compiled CompileNow(const Job& job);
  std::optional<Entry> Take(Ticket ticket) ABSL_LOCKS_EXCLUDED(mu_);

  const ConstraintCompilerOptions options_;
  const Clock clock_;
  const std::shared_ptr<grammar::GrammarCache> cache_;
  absl::Mutex mu_;
  // Neither ended nor cancelled. The thread that takes a job out ends it.
  std::map<Ticket, Entry> jobs_ ABSL_GUARDED_BY(mu_);
  Ticket last_ ABSL_GUARDED_BY(mu_) = 0;
  RequestPool pool_;  // last: its threads use all of the above
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_CONSTRAINT_COMPILER_H_
