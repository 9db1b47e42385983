#include <algorithm>
#include <memory>
#include <mutex>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "tools/soak_client/soak.h"

namespace foretoken::soak {
namespace {

constexpr int kReferences = 48;

enum class Fate { kWhole, kCancel, kDeadline };

struct Tally {
  int64_t whole = 0;
  int64_t cancelled = 0;
  int64_t out_of_time = 0;
  int64_t refused = 0;     // with a code that invites a retry
  int64_t unexpected = 0;  // any other code
  int64_t wrong_tokens = 0;
  std::string first_problem;
};

bool IsPrefix(const std::vector<TokenId>& part,
              const std::vector<TokenId>& whole) {
  return part.size() <= whole.size() &&
         std::equal(part.begin(), part.end(), whole.begin());
}

// What a system that is losing parts may answer.
bool IsRefusal(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsFailedPrecondition(status) || absl::IsAborted(status);
}

void Count(const Outcome& outcome, const Outcome& reference, Fate fate,
           Tally& tally) {
  const absl::Status& status = outcome.status;
  const bool right = status.ok() ? outcome.tokens == reference.tokens
                                 : IsPrefix(outcome.tokens, reference.tokens);
  if (!right) {
    ++tally.wrong_tokens;
  } else if (status.ok()) {
    ++tally.whole;
  } else if (fate == Fate::kCancel && absl::IsCancelled(status)) {
    ++tally.cancelled;
  } else if (fate == Fate::kDeadline && absl::IsDeadlineExceeded(status)) {
    ++tally.out_of_time;
  } else if (IsRefusal(status)) {
    ++tally.refused;
  } else {
    ++tally.unexpected;
  }
  if (tally.first_problem.empty() && (!right || tally.unexpected > 0)) {
    tally.first_problem =
        absl::StrCat(right ? "" : "other tokens; ", status.ToString());
  }
}

}  // namespace

absl::StatusOr<Json> RunChaos(const SoakOptions& options, int requests,
                              int concurrency) {
  if (options.modes.empty() || requests == 0) {
    return absl::InvalidArgumentError("no mode, or no request");
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<rpc::GenerationClient> client,
      rpc::GenerationClient::Connect(options.server, {}));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Work> work,
                             MakeWork(options, kReferences));
  const auto whole = [](size_t) { return true; };
  std::vector<Outcome> reference(work.size());
  for (size_t i = 0; i < work.size(); ++i) {
    // Parts may be dying already: ask until it is whole.
    for (int attempt = 0; attempt < 50; ++attempt) {
      reference[i] = Run(*client, work[i], "off", options.max_tokens,
                         absl::Now() + absl::Minutes(2), whole);
      if (reference[i].status.ok()) break;
      absl::SleepFor(absl::Milliseconds(200));
    }
    FORETOKEN_RETURN_IF_ERROR(reference[i].status);
  }

  Tally tally;
  std::mutex mutex;
  InParallel(requests, concurrency, [&](int number) {
    std::mt19937_64 random(options.seed * 7'919 + number);
    const size_t i = random() % work.size();
    const std::string& mode = options.modes[random() % options.modes.size()];
    const int draw = static_cast<int>(random() % 10);
    const Fate fate = draw < 6   ? Fate::kWhole
                      : draw < 8 ? Fate::kCancel
                                 : Fate::kDeadline;
    const size_t stop_after = 1 + random() % options.max_tokens;
    const absl::Duration time =
        fate == Fate::kDeadline
            ? absl::Milliseconds(static_cast<int64_t>(1 + random() % 400))
            : absl::Minutes(2);
    const Outcome outcome =
        Run(*client, work[i], mode, options.max_tokens, absl::Now() + time,
            [&](size_t tokens) {
              return fate != Fate::kCancel || tokens < stop_after;
            });
    const std::lock_guard<std::mutex> lock(mutex);
    Count(outcome, reference[i], fate, tally);
  });
  return Json{{"requests", requests},
              {"whole", tally.whole},
              {"cancelled", tally.cancelled},
              {"out_of_time", tally.out_of_time},
              {"refused", tally.refused},
              {"unexpected", tally.unexpected},
              {"wrong_tokens", tally.wrong_tokens},
              {"first_problem", tally.first_problem},
              {"bad", tally.unexpected + tally.wrong_tokens}};
}

}  // namespace foretoken::soak
