// GoodputGuard: how much the requests in mode auto draft, by measurement: the
// tokens a second of the whole verifier, compared between three arms (off,
// narrow, wide) at the present load.
//
// The guard announces one arm; every orchestrator follows it, so that several
// on one verifier do not work against each other. Time is divided into slices
// of a few passes under one arm. Most slices use the arm that is best so far;
// now and then one probes another arm, if what it may teach is worth more than
// its expected cost, and within a budget for the time that probes may lose. An
// arm far behind the best is thus probed rarely, but soon after the load or the
// goodput has changed; and no arm is left unprobed for ever.
//
// Loads (sessions, in powers of two) are learnt apart, and start from their
// neighbours; where nothing is known, from what the price of rows predicts: the
// more sessions share a pass, the less drafts are worth, down to none.
//
// A pass counts for a slice if its rounds were drafted under the slice's arm:
// after a switch, the first ones still have the trees of the arm before. Time
// between passes counts while sessions decode, because drafting may cause it;
// the share of a pass that prompts account for does not, because no arm does.
// Sessions that do not follow the guard count in goodput, and are a load of
// their own.
//
// Source: the trade of a probe's value against its cost is the knowledge
// gradient of Frazier, Powell and Dayanik (SIAM J. Control Optim. 47, 2008).
//
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_GOODPUT_GUARD_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_GOODPUT_GUARD_H_

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "common/speculation/draft_arm.h"
#include "services/verifier/core/arm_contrasts.h"

namespace foretoken::verifier {

enum class GuardMode {
  kMeasure,
  kWide,  // always: drafting follows the price of rows alone
};

// For tests: gives the arm after a pass under `arm`, in place of the guard.
using ArmHook = std::function<DraftArm(DraftArm arm)>;

// One pass.
struct GuardPass {
  absl::Time begin;
  absl::Time end;
  // Share of its time that rounds account for; 0: prompts alone.
  double rounds_share = 1;
  int32_t sessions = 0;   // that decode, whether they are in the pass or not
  int32_t followers = 0;  // of these, those in mode auto
  // Rounds of followers, by the arm that they were drafted under.
  std::array<int32_t, kDraftArms> rounds{};
  int64_t tokens = 0;    // committed by rounds of all sessions
  bool goes_on = false;  // sessions decode after it: time until the next counts
};

struct GuardNumbers {
  DraftArm arm = DraftArm::kWide;
  // Time under each arm while followers decode.
  std::array<double, kDraftArms> seconds{};
};

class GoodputGuard {
 public:
  explicit GoodputGuard(GuardMode mode = GuardMode::kMeasure,
                        ArmHook hook = nullptr)
      : mode_(mode), hook_(std::move(hook)) {}

  // For the rounds that follow.
  DraftArm arm() const { return numbers_.arm; }
  void Note(const GuardPass& pass);
  const GuardNumbers& numbers() const { return numbers_; }

 private:
  static constexpr int kLoads = 17;            // 1, 2, 4, ... 65536 sessions
  static constexpr int kMixes = 2;             // mostly followers; or not
  static constexpr int kRecent = 3;            // passes that decide on the load
  static constexpr double kTypicalPasses = 8;  // of a slice

  struct Slice {
    int32_t passes = 0;
    int64_t rounds = 0;  // of followers
    int64_t tokens = 0;
    double seconds = 0;
  };
  // Noise of one pass's goodput (relative variance) under one arm, from the
  // differences of slices in a row.
  struct Noise {
    double variance = 0;
    double weight = 0;
    double last = 0;         // logarithm of the last slice's goodput
    double last_passes = 0;  // 0: the last slice was under another arm
  };
  struct Load {
    bool measured = false;
    DraftArm best = DraftArm::kWide;
    ArmContrasts contrasts;
    std::array<Noise, kDraftArms> noise;
    std::array<double, kDraftArms> slice_seconds{};  // 0: not known
    std::array<int64_t, kDraftArms> slices{};
    double slice_passes = kTypicalPasses;
    absl::Time used;                           // end of the last slice
    std::array<absl::Time, kDraftArms> tried;  // under each arm, or entered
    double budget = 0;                         // seconds that probes may lose
    double surprise = 0;                       // of the latest slices
  };

  // The load that `pass` stands for, as an index into loads_.
  int LoadOf(const GuardPass& pass);
  void Enter(int load, absl::Time now);
  ArmContrasts::Beliefs Prior(int load) const;
  void Begin(DraftArm arm, absl::Time now);
  // True if the slice of a probe is so far behind that noise does not explain
  // it.
  bool IsHopeless() const;
  // True once the slice has enough passes.
  bool IsComplete(const GuardPass& pass) const;
  void Finish(absl::Time now);
  void NoteNoise(Load& load, DraftArm arm, double log_rate);
  DraftArm Best(const Load& load) const;
  // The arm of the next slice: the best, or one that is worth a probe.
  DraftArm Choose(const Load& load) const;
  // Seconds that a slice under `arm` takes, and the variance of its logarithm.
  double SliceSeconds(const Load& load, DraftArm arm) const;
  double SliceNoise(const Load& load, DraftArm arm) const;
  double Worth(const Load& load, DraftArm arm, double slices) const;
  // Share of its time that a probe of `arm` is expected to lose.
  double Behind(const Load& load, DraftArm arm) const;
  // True if `arm` has had too few slices to be given up.
  bool IsNew(const Load& load, DraftArm arm) const;
  // True if `arm` was not tried for long: a probe costs little by now.
  bool IsStale(const Load& load, DraftArm arm) const;

  const GuardMode mode_;
  const ArmHook hook_;  // may be null
  GuardNumbers numbers_;
  std::array<Load, kLoads * kMixes> loads_;
  int load_ = -1;
  std::array<double, kRecent> recent_sessions_{};
  int recent_ = 0;  // the oldest of them
  Slice slice_;
  bool probing_ = false;  // the slice has another arm than the best
  int32_t passes_under_arm_ = 0;
  absl::Time began_;  // the slice
  absl::Time last_end_;
  bool goes_on_ = false;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_GOODPUT_GUARD_H_
