#include "services/verifier/core/constraint_compiler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/retry_after.h"
#include "common/base/status_macros.h"
#include "common/base/stopping.h"

namespace foretoken::verifier {
namespace {

// No more than this: an orchestrator waits for the session meanwhile.
constexpr int kNice = 5;

RequestPoolOptions PoolOptions(const ConstraintCompilerOptions& options) {
  // Every compilation costs one, whatever the size of its constraint: a short
  // one may take as long as a long one.
  return {.max_running = 1,
          .waiting = options.waiting,
          .quantum = 1,
          .nice = kNice};
}

// Whatever is wrong with it, another verifier would say the same.
absl::Status Refused(const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat("constraint: ", status.message()));
}

}  // namespace

ConstraintCompiler::ConstraintCompiler(const ConstraintCompilerOptions& options,
                                       Clock clock)
    : options_(options),
      clock_(std::move(clock)),
      cache_(options.cache != nullptr
                 ? options.cache
                 : std::make_shared<grammar::GrammarCache>(options.grammars)),
      pool_(PoolOptions(options), clock_) {}

ConstraintCompiler::~ConstraintCompiler() {
  // While all members still exist: `done` functions call back into the
  // sessions.
  FailAll(StoppingError("the verifier"));
}

std::shared_ptr<const grammar::Grammar> ConstraintCompiler::Find(
    const Constraint& constraint) {
  const int64_t most = cache_->options().max_constraint_bytes;
  // Not even looked up: hashing a constraint takes time in proportion to its
  // size.
  if (static_cast<int64_t>(constraint.bytes()) > most) return nullptr;
  return cache_->Find(constraint);
}

absl::StatusOr<ConstraintCompiler::Ticket> ConstraintCompiler::Compile(
    Job job, Done done) {
  const int64_t most = cache_->options().max_constraint_bytes;
  if (static_cast<int64_t>(job.constraint.bytes()) > most) {
    // Refused by its size, which takes no time.
    return Refused(cache_->Get(job.caller, job.constraint).status());
  }
  PooledRequest turn;
  turn.item = {
      .owner = job.caller,
      .weight = job.weight,
      .bytes = job.bytes,
      .deadline = std::min(job.deadline, clock_() + options_.max_wait)};
  // Declared before the lock: `done` must not be destroyed under it.
  Entry entry{std::make_shared<const Job>(std::move(job)), std::move(done)};
  absl::MutexLock lock(&mu_);
  const Ticket ticket = ++last_;
  turn.run = [this, ticket] { Run(ticket); };
  turn.refuse = [this, ticket](const absl::Status& reason) {
    Refuse(ticket, reason);
  };
  // Either function waits for mu_, and then finds the job.
  FORETOKEN_ASSIGN_OR_RETURN(entry.waiting, pool_.TrySubmit(std::move(turn)));
  jobs_[ticket] = std::move(entry);
  return ticket;
}

std::optional<ConstraintCompiler::Entry> ConstraintCompiler::Take(
    Ticket ticket) {
  absl::MutexLock lock(&mu_);
  const auto found = jobs_.find(ticket);
  if (found == jobs_.end()) return std::nullopt;
  Entry entry = std::move(found->second);
  jobs_.erase(found);
  return entry;
}

void ConstraintCompiler::Cancel(Ticket ticket) {
  const std::optional<Entry> entry = Take(ticket);
  if (!entry.has_value()) return;
  // Outside mu_, which the pool's thread may hold in Run.
  pool_.Remove(entry->waiting, absl::CancelledError("the job was cancelled"));
}

void ConstraintCompiler::FailAll(const absl::Status& status) {
  std::map<Ticket, Entry> failed;
  {
    absl::MutexLock lock(&mu_);
    failed.swap(jobs_);
  }
  for (const auto& [ticket, entry] : failed) {
    pool_.Remove(entry.waiting, status);
    // Called without mu_: it may open or close sessions.
    entry.done(status);
  }
}

void ConstraintCompiler::Run(Ticket ticket) {
  std::shared_ptr<const Job> job;
  {
    absl::MutexLock lock(&mu_);
    const auto found = jobs_.find(ticket);
    // Cancelled, failed, or ended by another job's compilation.
    if (found == jobs_.end()) return;
    job = found->second.job;
  }
  if (job->deadline <= clock_()) {
    Refuse(ticket, absl::DeadlineExceededError("the deadline has passed"));
    return;
  }
  const Compiled compiled = CompileNow(*job);
  std::vector<Entry> ended;
  {
    // Comparing takes little: the bytes of waiting constraints are bounded.
    absl::MutexLock lock(&mu_);
    // Every job with the same constraint ends with this compilation; without
    // that, equal jobs would each wait for a turn and find it in the cache.
    for (auto next = jobs_.begin(); next != jobs_.end();) {
      const auto each = next++;
      if (each->second.job->constraint != job->constraint) continue;
      ended.push_back(std::move(each->second));
      jobs_.erase(each);
    }
  }
  for (const Entry& each : ended) {
    pool_.Remove(each.waiting, absl::CancelledError("it needs no turn"));
    each.done(compiled);
  }
}

ConstraintCompiler::Compiled ConstraintCompiler::CompileNow(const Job& job) {
  if (options_.before_compile) options_.before_compile(job.constraint);
  Compiled compiled = cache_->Get(job.caller, job.constraint);
  if (!compiled.ok()) return Refused(compiled.status());
  return compiled;
}

void ConstraintCompiler::Refuse(Ticket ticket, const absl::Status& reason) {
  const std::optional<Entry> entry = Take(ticket);
  if (!entry.has_value()) return;
  const Job& job = *entry->job;
  // The pool's own limit has passed, not the request's: overload, which another
  // try may escape.
  if (absl::IsDeadlineExceeded(reason) && clock_() < job.deadline) {
    entry->done(WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat(
            "constraint: it waited ", absl::FormatDuration(options_.max_wait),
            " for its turn to be compiled")),
        pool_.RetryAfter(job.caller, /*max_running=*/0)));
    return;
  }
  entry->done(reason);
}

}  // namespace foretoken::verifier
