#include "services/verifier/core/goodput_guard.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace foretoken::verifier {
namespace {

// A slice has this many passes, or lasts this long.
constexpr int32_t kSlicePasses = 12;
constexpr double kSliceSeconds = 0.1;
// Passes within which sessions must take up an arm; else it is given up.
constexpr int32_t kMaxPasses = 8 * kSlicePasses;
// A pass counts if at most one in this many of its rounds was drafted under
// another arm.
constexpr int32_t kStragglers = 4;
// A longer pause of all sessions at once has other causes than drafting.
constexpr absl::Duration kMaxPause = absl::Seconds(1);

// Time for which a better arm is expected to stay better.
constexpr double kHorizonSeconds = 60.0;
// Probes may lose this share of the time, and this much at once.
constexpr double kBudgetShare = 0.01;
constexpr double kMaxBudgetSeconds = 1.0;
// At a new load they may lose this much.
constexpr double kFirstBudgetSeconds = 2.0;
// No arm is given up before this many slices, as long as each is expected to
// lose little: a single one may have had bad luck.
constexpr int kLeastSlices = 4;
constexpr double kLittleSeconds = 0.15;
// An old belief may be wrong: an arm is probed again, however bad it looks,
// once a slice of it would lose at most this share of the time since its last
// one.
constexpr double kStaleShare = 0.002;
// A switch costs passes that count for no arm and drafters that catch up: this
// share of a slice.
constexpr double kSwitchCost = 0.02;
// A probe that is this far behind, in standard deviations of its noise, shows
// enough with its first pass.
constexpr double kHopeless = 4.0;
// The best arm is left for one that is better by this much.
constexpr double kHysteresis = 0.003;

// Relative variance of a pass's goodput that is assumed at first: of its time,
// and of the tokens of one round with drafts.
constexpr double kTimeNoise = 0.2 * 0.2;
constexpr double kTokenNoise = 1.0;
// It counts as much as this many slices; the slices kept, at most.
constexpr double kNoiseWeight = 5;
constexpr double kMaxNoiseWeight = 50;
constexpr double kLeastNoise = 0.02 * 0.02;

// Expected gain of drafting (logarithm) with 1, 2, 4, ... sessions, and
// how uncertain that is. A busy verifier begins without drafts: where they do
// not pay, passes full of them take long.
constexpr double kExpected[] = {0.4, 0.3, 0.2, 0.1, -0.02};
constexpr double kExpectedVariance = 1.0;
// How much a load says about one with twice or half as many sessions.
constexpr double kNeighbourShrink = 0.7;
constexpr double kNeighbourVariance = 0.2 * 0.2;
constexpr int kFarthestNeighbour = 2;

// Slices that are further from their expectation (in standard deviations) are
// surprises; their squares add up and fade with every slice. Beyond the
// maximum, goodput has changed.
constexpr double kSurprise = 3.0;
constexpr double kSurpriseFades = 2.0;
constexpr double kMaxSurprise = 20.0;

constexpr DraftArm kArms[] = {DraftArm::kOff, DraftArm::kNarrow,
                              DraftArm::kWide};

// Between two powers of two, either may be taken.
bool IsNear(int load, double power) { return std::abs(power - load) < 0.6; }

size_t Index(DraftArm arm) { return static_cast<size_t>(arm); }

// Expected value of max(0, x) for a normal x.
double ExpectedGain(double mean, double deviation) {
  // The density at z and the mass above 0.
  if (deviation <= 0) return std::max(0.0, mean);
  const double z = mean / deviation;
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
  return deviation * density + mean * 0.5 * std::erfc(-z / std::sqrt(2.0));
}

}  // namespace

void GoodputGuard::Note(const GuardPass& pass) {
  const bool paused = goes_on_ && pass.begin - last_end_ < kMaxPause;
  const double pause =
      paused ? absl::ToDoubleSeconds(pass.begin - last_end_) : 0.0;
  last_end_ = pass.end;
  goes_on_ = pass.goes_on;
  // With the guard off, or without sessions that follow it, there is nothing to
  // choose.
  if (mode_ == GuardMode::kWide || pass.followers == 0) return;
  const double length = absl::ToDoubleSeconds(pass.end - pass.begin);
  numbers_.seconds[Index(arm())] += pause + length;
  if (hook_ != nullptr) {
    numbers_.arm = hook_(arm());
    return;
  }
  const int load = LoadOf(pass);
  if (load != load_) {
    Enter(load, pass.end);
    return;
  }
  ++passes_under_arm_;
  int32_t rounds = 0;
  for (const int32_t count : pass.rounds) rounds += count;
  const int32_t stragglers = rounds - pass.rounds[Index(arm())];
  // A pass before or after a change of the load, which is noticed late.
  const bool usual =
      IsNear(load_ % kLoads, std::log2(std::max(1, pass.sessions)));
  // Passes that ran while sessions still drafted under another arm would credit
  // the wrong one.
  if (usual && stragglers * kStragglers <= rounds) {
    slice_.passes += rounds > 0;
    slice_.rounds += rounds;
    slice_.tokens += pass.tokens;
    slice_.seconds += pause + length * pass.rounds_share;
  }
  if (IsComplete(pass)) {
    Finish(pass.end);
  } else if (passes_under_arm_ >= kMaxPasses) {
    // Sessions that never take up an arm must not hold the guard in it; the
    // time counts as lost.
    Load& given_up = loads_[load_];
    given_up.budget -= absl::ToDoubleSeconds(pass.end - began_);
    Begin(given_up.best, pass.end);
  }
}

// The median of the last passes: sessions that miss one pass do not change it.
int GoodputGuard::LoadOf(const GuardPass& pass) {
  recent_sessions_[recent_] = std::max(1, pass.sessions);
  recent_ = (recent_ + 1) % kRecent;
  std::array<double, kRecent> sorted = recent_sessions_;
  std::sort(sorted.begin(), sorted.end());
  const double power = std::log2(std::max(1.0, sorted[kRecent / 2]));
  const bool mixed = pass.followers < 0.75 * pass.sessions;
  const int mix = mixed ? 1 : 0;
  // Hysteresis: a load on the border of two powers keeps its statistics.
  if (load_ >= 0 && load_ / kLoads == mix && IsNear(load_ % kLoads, power)) {
    return load_;
  }
  return mix * kLoads +
         std::clamp(static_cast<int>(std::lround(power)), 0, kLoads - 1);
}

ArmContrasts::Beliefs GoodputGuard::Prior(int load) const {
  ArmContrasts::Beliefs beliefs;
  const int power = load % kLoads;
  const double expected =
      kExpected[std::min<size_t>(power, std::size(kExpected) - 1)];
  for (const DraftArm arm : {DraftArm::kNarrow, DraftArm::kWide}) {
    double weight = 1 / kExpectedVariance;
    double sum = weight * (arm == DraftArm::kWide ? expected : expected / 2);
    for (int far = 1; far <= kFarthestNeighbour; ++far) {
      for (const int other : {power - far, power + far}) {
        if (other < 0 || other >= kLoads) continue;
        const Load& neighbour = loads_[load - power + other];
        if (!neighbour.measured) continue;
        const ArmContrasts::Belief belief = neighbour.contrasts.Get(arm);
        // Precision-weighted mean: neighbours count less, the further they are
        // and the less certain.
        const double precision =
            1 / (belief.variance + kNeighbourVariance * far * far);
        weight += precision;
        sum += precision * belief.mean * std::pow(kNeighbourShrink, far);
      }
    }
    beliefs[Index(arm)] = {sum / weight, 1 / weight};
  }
  return beliefs;
}

void GoodputGuard::Enter(int index, absl::Time now) {
  load_ = index;
  Load& load = loads_[index];
  if (!load.measured) {
    load.contrasts = ArmContrasts(Prior(index));
    // Not stale at once: nothing was tried yet.
    load.tried.fill(now);
    load.budget = kFirstBudgetSeconds;
    const double sessions = std::exp2(index % kLoads);
    for (const DraftArm arm : kArms) {
      const double tokens = arm == DraftArm::kOff ? 0 : kTokenNoise / sessions;
      load.noise[Index(arm)] = {kTimeNoise + tokens, kNoiseWeight};
    }
  } else {
    load.contrasts.Age(absl::ToDoubleSeconds(now - load.used));
    // Loads come and go; the level of goodput is that of the moment, what an
    // arm adds is not.
    load.contrasts.ForgetLevel();
    for (Noise& noise : load.noise) noise.last_passes = 0;
  }
  load.used = now;
  load.surprise = 0;
  load.best = Best(load);
  Begin(load.best, now);
}

void GoodputGuard::Begin(DraftArm arm, absl::Time now) {
  began_ = now;
  numbers_.arm = arm;
  slice_ = Slice();
  passes_under_arm_ = 0;
  probing_ = false;
}

bool GoodputGuard::IsHopeless() const {
  const Load& load = loads_[load_];
  const double rate = static_cast<double>(slice_.tokens) / slice_.seconds;
  const double behind =
      load.contrasts.Expected(load.best).mean - std::log(rate);
  const double noise = load.noise[Index(arm())].variance / slice_.passes;
  return behind > kHopeless * std::sqrt(std::max(kLeastNoise, noise));
}

bool GoodputGuard::IsComplete(const GuardPass& pass) const {
  if (slice_.tokens == 0 || slice_.passes == 0) return false;
  if (probing_ && IsHopeless()) return true;
  // Every follower has had its round at least once, so no session is left
  // out of the mean.
  if (slice_.rounds < pass.followers) return false;
  return slice_.passes >= kSlicePasses || slice_.seconds >= kSliceSeconds;
}

void GoodputGuard::NoteNoise(Load& load, DraftArm arm, double log_rate) {
  const double passes = slice_.passes;
  for (const DraftArm other : kArms) {
    Noise& noise = load.noise[Index(other)];
    if (other != arm) {
      noise.last_passes = 0;
      continue;
    }
    if (noise.last_passes > 0) {
      const double difference = log_rate - noise.last;
      // Two slices of the same arm in a row differ by noise alone; this is an
      // unbiased estimate of one pass's variance.
      const double variance =
          difference * difference / (1 / passes + 1 / noise.last_passes);
      noise.weight = std::min(noise.weight + 1, kMaxNoiseWeight);
      noise.variance += (variance - noise.variance) / noise.weight;
    }
    noise.last = log_rate;
    noise.last_passes = passes;
  }
}

void GoodputGuard::Finish(absl::Time now) {
  Load& load = loads_[load_];
  const DraftArm arm = numbers_.arm;
  if (slice_.seconds <= 0) {  // a clock that stands still
    Begin(arm, now);
    return;
  }
  load.contrasts.Age(absl::ToDoubleSeconds(now - load.used));
  load.used = now;
  const double noise =
      std::max(kLeastNoise, load.noise[Index(arm)].variance) / slice_.passes;
  // The mean of a logarithm is below the logarithm of the mean: noisier arms
  // would look worse.
  const double log_rate =
      std::log(static_cast<double>(slice_.tokens) / slice_.seconds) +
      0.5 * noise;
  const ArmContrasts::Belief expected = load.contrasts.Expected(arm);
  const double error = log_rate - expected.mean;
  // Slices of one arm alone: a probe's may well be far from what was expected.
  if (load.noise[Index(arm)].last_passes > 0) {
    const double distance = error * error / (expected.variance + noise);
    load.surprise = std::max(0.0, load.surprise - kSurpriseFades) +
                    (distance > kSurprise * kSurprise ? distance : 0.0);
    if (load.surprise > kMaxSurprise) {
      load.contrasts.Loosen();
      load.surprise = 0;
    }
  }
  NoteNoise(load, arm, log_rate);
  load.contrasts.Observe(arm, log_rate, noise);
  load.measured = true;
  load.tried[Index(arm)] = now;
  ++load.slices[Index(arm)];
  load.slice_passes += 0.2 * (slice_.passes - load.slice_passes);
  double& seconds = load.slice_seconds[Index(arm)];
  seconds += seconds == 0 ? slice_.seconds : 0.2 * (slice_.seconds - seconds);

  load.best = Best(load);
  // A budget that fills slowly bounds what probing costs in the long run,
  // whatever Worth believes.
  if (load.budget < kMaxBudgetSeconds) {
    load.budget += slice_.seconds * kBudgetShare;
  }
  if (probing_) load.budget -= slice_.seconds * Behind(load, arm);
  Begin(Choose(load), now);
  probing_ = numbers_.arm != load.best;
}

DraftArm GoodputGuard::Best(const Load& load) const {
  DraftArm best = load.best;
  for (const DraftArm arm : kArms) {
    const double lead =
        load.contrasts.Mean(arm) - load.contrasts.Mean(best) - kHysteresis;
    if (lead > 0) best = arm;
  }
  return best;
}

// An untried arm is taken to be as slow as the slowest one.
double GoodputGuard::SliceSeconds(const Load& load, DraftArm arm) const {
  if (load.slice_seconds[Index(arm)] > 0) return load.slice_seconds[Index(arm)];
  return *std::max_element(load.slice_seconds.begin(),
                           load.slice_seconds.end());
}

double GoodputGuard::SliceNoise(const Load& load, DraftArm arm) const {
  return std::max(kLeastNoise, load.noise[Index(arm)].variance) /
         std::max(1.0, load.slice_passes);
}

// The value of `slices` under `arm`: the goodput until the horizon that is
// gained by choosing with the knowledge they bring, less what they cost.
double GoodputGuard::Worth(const Load& load, DraftArm arm,
                           double slices) const {
  const ArmContrasts& contrasts = load.contrasts;
  double gain = 0;
  for (const DraftArm other : kArms) {
    if (other == load.best) continue;
    const double lead = contrasts.Mean(other) - contrasts.Mean(load.best);
    const double learning = contrasts.Learning(
        arm, SliceNoise(load, arm) / slices, other, load.best);
    gain = std::max(gain, ExpectedGain(lead, learning));
  }
  const double seconds = slices * SliceSeconds(load, arm);
  // Gains last until the horizon, costs are paid now.
  return std::max(0.0, kHorizonSeconds - seconds) * gain -
         seconds * Behind(load, arm);
}

double GoodputGuard::Behind(const Load& load, DraftArm arm) const {
  if (arm == load.best) return 0.0;
  return load.contrasts.Mean(load.best) - load.contrasts.Mean(arm) +
         kSwitchCost;
}

bool GoodputGuard::IsNew(const Load& load, DraftArm arm) const {
  return load.slices[Index(arm)] < kLeastSlices &&
         SliceSeconds(load, arm) * Behind(load, arm) < kLittleSeconds;
}

bool GoodputGuard::IsStale(const Load& load, DraftArm arm) const {
  const double since =
      absl::ToDoubleSeconds(load.used - load.tried[Index(arm)]);
  return since * kStaleShare > SliceSeconds(load, arm) * Behind(load, arm);
}

// One slice alone may show too little to matter, so several are weighed, too.
DraftArm GoodputGuard::Choose(const Load& load) const {
  DraftArm chosen = load.best;
  if (load.budget <= 0) return chosen;
  double most = 0;
  for (const double slices : {1.0, 4.0, 16.0}) {
    most = std::max(most, Worth(load, load.best, slices));
  }
  for (const DraftArm arm : kArms) {
    if (arm == load.best) continue;
    if (IsNew(load, arm) || IsStale(load, arm)) return arm;
    for (const double slices : {1.0, 4.0, 16.0}) {
      const double worth = Worth(load, arm, slices);
      if (!(worth > most)) continue;
      most = worth;
      chosen = arm;
    }
  }
  return chosen;
}

}  // namespace foretoken::verifier
