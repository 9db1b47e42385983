#include "tools/cli/mode_bench/load.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"

namespace foretoken::mode_bench {
namespace {

// A bound on the pause, so that a failed request ends the run soon even when
// the next arrival is minutes away.
constexpr absl::Duration kLongestPause = absl::Milliseconds(100);
// Interval at which a request checks whether another has failed.
constexpr absl::Duration kFailurePoll = absl::Milliseconds(100);

// A status that an overloaded service may answer with.
bool IsRefusal(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

double Rate(int64_t tokens, absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

// One request, whose listener notes what comes at the time when it comes.
class Arrivals final : public GenerationListener {
 public:
  Arrivals(LoadOutcome& outcome, const Clock& clock)
      : outcome_(outcome), clock_(clock) {}

  bool OnDelta(const GenerationDelta& delta) override {
    // The fingerprint comes with the first delta, which may have no tokens yet.
    if (delta.start.has_value()) {
      outcome_.numerics_fingerprint = delta.start->numerics_fingerprint;
    }
    // Such a delta must not become a chunk: the time to the first token would
    // be measured to it.
    if (delta.token_ids.empty()) return true;
    outcome_.chunks.push_back(
        {clock_(), static_cast<int64_t>(delta.token_ids.size())});
    outcome_.tokens.insert(outcome_.tokens.end(), delta.token_ids.begin(),
                           delta.token_ids.end());
    // Never paused: a client that reads slowly would measure itself.
    return true;
  }
  void OnResult(const GenerationSummary& summary) override {
    outcome_.summary = summary;
  }
  void OnEnd(const absl::Status& status) override {
    // Outside the lock: it is written before `status_`, and read only after
    // WaitFor has seen that under mu_, which orders the two.
    outcome_.end = clock_();
    absl::MutexLock lock(&mu_);
    status_ = status;
  }

  // How the request has ended; nullopt if it has not within `time`.
  std::optional<absl::Status> WaitFor(absl::Duration time) {
    absl::MutexLock lock(&mu_);
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return status_.has_value();
    };
    AwaitFor(mu_, absl::Condition(&ended), time);
    return status_;
  }

 private:
  LoadOutcome& outcome_;
  const Clock& clock_;
  absl::Mutex mu_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
};

// Runs single requests and keeps their outcomes and the first error.
// Thread-safe; each request is run once.
class Runs {
 public:
  Runs(Generator& generator, const std::vector<LoadRequest>& work,
       const LoadOptions& options, bool refusals_allowed)
      : generator_(generator),
        work_(work),
        options_(options),
        refusals_allowed_(refusals_allowed),
        outcomes_(work.size()) {}

  void Run(size_t index, absl::Time start) {
    LoadOutcome& outcome = outcomes_[index];
    outcome.prompt = work_[index].prompt;
    // The time at which the request was due, not when its thread got to it:
    // otherwise delays of the client's own would make a slow server look faster
    // (coordinated omission).
    outcome.start = start;
    const auto arrivals = std::make_shared<Arrivals>(outcome, options_.clock);
    const auto call = generator_.Start(work_[index].request, arrivals);
    std::optional<absl::Status> end;
    // Polls, because the failure of another request has no way to wake this
    // one's listener.
    while (!(end = arrivals->WaitFor(kFailurePoll)).has_value()) {
      // Called again at each poll until the request has ended; cancelling twice
      // is harmless.
      if (failed()) call->Cancel();
    }
    // Such an outcome has no first chunk, and its times would be undefined.
    if (end->ok() && outcome.tokens.empty()) {
      end = absl::InternalError("an answer without tokens");
    }
    // Under an open loop refusals are a result of the measurement; in a closed
    // loop, where the load is the benchmark's own choice, they are an error.
    if (refusals_allowed_ && IsRefusal(*end)) {
      outcome.refused = true;
    } else if (!end->ok()) {
      Fail(Annotate(*end, absl::StrCat("prompt ", outcome.prompt + 1)));
    }
    if (options_.on_done != nullptr) options_.on_done();
  }

  void Fail(absl::Status status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    // The first error names the cause; those after it are mostly the
    // cancellations that it led to.
    if (error_.ok()) error_ = std::move(status);
  }
  bool failed() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return !error_.ok();
  }

  // After the last Run has returned. Counts the tokens until `end`.
  absl::StatusOr<LoadResult> Result(absl::Time start, absl::Time end)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (!error_.ok()) return error_;
    int64_t tokens = 0;
    for (const LoadOutcome& outcome : outcomes_) {
      for (const LoadOutcome::Chunk& chunk : outcome.chunks) {
        // Tokens after `end` come while clients run out of work and the load
        // falls; counting them, without their time, would overstate the rate.
        if (chunk.time <= end) tokens += chunk.tokens;
      }
    }
    LoadResult result;
    result.tokens_per_s = Rate(tokens, end - start);
    result.outcomes = std::move(outcomes_);
    return result;
  }

  const std::vector<LoadOutcome>& outcomes() const { return outcomes_; }

 private:
  Generator& generator_;
  const std::vector<LoadRequest>& work_;
  const LoadOptions& options_;
  const bool refusals_allowed_;
  std::vector<LoadOutcome> outcomes_;  // each written by its own Run
  mutable absl::Mutex mu_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

// Gives each request a thread at its time; threads are reused.
class OpenLoop {
 public:
  OpenLoop(Runs& runs, const std::vector<LoadRequest>& work,
           const LoadOptions& options)
      : runs_(runs), work_(work), options_(options) {}

  // Returns when all requests have ended.
  void Run(absl::Time start) {
    for (size_t i = 0; i < work_.size(); ++i) {
      const absl::Time due = start + work_[i].at;
      // The queue holds only requests that are due. Late ones keep their due
      // time, so their delay is measured.
      if (!WaitUntil(due)) break;
      if (Dispatch(i, due)) continue;
      // Waiting for a free thread would turn the open loop into a closed one:
      // the trace's load would no longer be what is measured.
      runs_.Fail(absl::ResourceExhaustedError(
          absl::StrCat(options_.max_in_flight,
                       " requests are running and the next is due: want a "
                       "lower --speed")));
      break;
    }
    {
      absl::MutexLock lock(&mu_);
      // Threads end only when the queue is empty, so requests that are
      // dispatched still run.
      closed_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  struct Due {
    size_t index = 0;
    absl::Time time;
  };

  // False once a request has failed.
  bool WaitUntil(absl::Time due) {
    while (!runs_.failed()) {
      const absl::Duration left = due - options_.clock();
      if (left <= absl::ZeroDuration()) return true;
      const absl::Duration pause = std::min(left, kLongestPause);
      // Tests replace the pause along with the clock.
      if (options_.pause != nullptr) {
        options_.pause(pause);
      } else {
        absl::SleepFor(pause);
      }
    }
    return false;
  }

  bool Dispatch(size_t index, absl::Time due) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    // Invariant: idle_ counts threads that run no request, the queued requests
    // still to be taken included. A new thread is needed when each idle one has
    // a request waiting for it.
    if (idle_ <= static_cast<int>(queue_.size())) {
      if (static_cast<int>(threads_.size()) >= options_.max_in_flight) {
        return false;
      }
      // Counted here and not by the thread itself, so that the next Dispatch,
      // which may come before it runs, does not start another for the same
      // request.
      ++idle_;
      threads_.emplace_back([this] { Serve(); });
    }
    queue_.push_back({index, due});
    return true;
  }

  void Serve() ABSL_LOCKS_EXCLUDED(mu_) {
    while (const std::optional<Due> due = Next()) {
      runs_.Run(due->index, due->time);
      absl::MutexLock lock(&mu_);
      ++idle_;
    }
  }

  std::optional<Due> Next() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return closed_ || !queue_.empty();
    };
    mu_.Await(absl::Condition(&ready));
    if (queue_.empty()) return std::nullopt;
    const Due due = queue_.front();
    queue_.pop_front();
    // With the request, under one lock: Dispatch must not see a thread as idle
    // whose request has left the queue.
    --idle_;
    return due;
  }

  Runs& runs_;
  const std::vector<LoadRequest>& work_;
  const LoadOptions& options_;
  std::vector<std::thread> threads_;  // of Run's thread
  absl::Mutex mu_;
  std::deque<Due> queue_ ABSL_GUARDED_BY(mu_);
  int idle_ ABSL_GUARDED_BY(mu_) = 0;  // threads that run no request
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

double LoadOutcome::first_token_ms() const {
  return absl::ToDoubleMilliseconds(chunks.front().time - start);
}

double LoadOutcome::latency_ms() const {
  return absl::ToDoubleMilliseconds(end - start);
}

int64_t LoadOutcome::decoded_tokens() const {
  // The tokens of the first chunk came with prefill; decoding speed is that of
  // those after it.
  return static_cast<int64_t>(tokens.size()) - chunks.front().tokens;
}

double LoadOutcome::decode_ms() const {
  return absl::ToDoubleMilliseconds(chunks.back().time - chunks.front().time);
}

void LoadOutcome::AppendTokenGaps(std::vector<double>& milliseconds) const {
  for (size_t i = 1; i < chunks.size(); ++i) {
    const double gap =
        absl::ToDoubleMilliseconds(chunks[i].time - chunks[i - 1].time);
    // A round commits several tokens at once. Its gap is spread over them, one
    // value for each, so that the percentiles are over tokens and compare with
    // those of plain decoding.
    milliseconds.insert(milliseconds.end(), chunks[i].tokens,
                        gap / static_cast<double>(chunks[i].tokens));
  }
}

absl::StatusOr<LoadResult> RunClosedLoop(Generator& generator,
                                         const std::vector<LoadRequest>& work,
                                         int clients,
                                         const LoadOptions& options) {
  Runs runs(generator, work, options, /*refusals_allowed=*/false);
  absl::Mutex mu;
  size_t next = 0;
  // The end of the steady state: from the moment when the first client finds no
  // more work, fewer than `clients` requests run.
  absl::Time steady_end = absl::InfiniteFuture();
  const absl::Time start = options.clock();
  const auto client = [&] {
    while (true) {
      size_t index;
      {
        absl::MutexLock lock(&mu);
        // Tested under the same lock as `next`, so each request is taken once.
        if (next == work.size() || runs.failed()) {
          steady_end = std::min(steady_end, options.clock());
          return;
        }
        index = next++;
      }
      runs.Run(index, options.clock());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) threads.emplace_back(client);
  for (std::thread& thread : threads) thread.join();
  return runs.Result(start, steady_end);
}

absl::StatusOr<LoadResult> RunOpenLoop(Generator& generator,
                                       const std::vector<LoadRequest>& work,
                                       const LoadOptions& options) {
  Runs runs(generator, work, options, /*refusals_allowed=*/true);
  const absl::Time start = options.clock();
  OpenLoop(runs, work, options).Run(start);
  // Until the last request has ended: an open loop has no steady state of its
  // own, the trace sets the load.
  absl::Time end = start;
  for (const LoadOutcome& outcome : runs.outcomes()) {
    end = std::max(end, outcome.end);
  }
  return runs.Result(start, end);
}

}  // namespace foretoken::mode_bench
