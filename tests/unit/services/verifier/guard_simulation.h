// A verifier in simulated time, whose sessions follow a GoodputGuard: stated
// costs of passes with noise, drafters of stated chances, and the
// orchestrator's own choice of nodes (RoundPace, PassCosts).
//
// Sessions are a closed loop: every one asks for its next round as soon as it
// has an answer. Deterministic for a seed.
#ifndef FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_GUARD_SIMULATION_H_
#define FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_GUARD_SIMULATION_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/speculation/draft_arm.h"
#include "common/speculation/round.h"
#include "services/orchestrator/core/economics/pass_costs.h"
#include "services/orchestrator/core/economics/round_pace.h"
#include "services/verifier/core/goodput_guard.h"

namespace foretoken::testing {

struct SimulatedTarget {
  const char* name;
  std::function<double(double rows)> pass_ms;
};

// Chains: a node is right with the same chance as the one before it, given that
// one. Rounds are easy, middling or hard in turn.
struct SimulatedDrafter {
  const char* name;
  double chances[3];
  double claims = 1;        // factor of the chances that it states
  double seconds = 0.0005;  // of a round in which it is asked
  int max_nodes = 32;
};

// Sessions from a time on.
struct LoadStep {
  double seconds;
  int sessions;
};

// Tokens a second in every step's time from two seconds after its beginning, by
// expected values: neither noise nor luck is in it.
struct SimulatedRun {
  std::vector<double> rates;  // [steps]
  // Share of each arm in that time.
  std::vector<std::array<double, kDraftArms>> shares;  // [steps]
};

class GuardSimulation {
 public:
  static constexpr double kSettle = 2.0;
  // Passes that an entry of the verifier's table averages: PassTiming's weight
  // of a tenth for the newest one leaves as much noise as the mean of 19.
  static constexpr int kMeasuredPasses = 19;

  // `groups` of sessions take turns at passes: with two of them, a pass has
  // the trees of the answer before the last one.
  GuardSimulation(SimulatedTarget target, SimulatedDrafter drafter, int groups,
                  double noise, uint32_t seed)
      : target_(std::move(target)),
        drafter_(drafter),
        groups_(groups),
        noise_(noise),
        random_(seed) {
    // What the verifier has measured under the same noise.
    std::vector<std::pair<int32_t, double>> measured;
    for (int32_t rows = 1; rows <= 1024; rows *= 2) {
      measured.emplace_back(rows, Measured(rows));
      if (rows > 1) measured.emplace_back(rows * 3 / 2, Measured(rows * 3 / 2));
    }
    costs_ = orchestrator::PassCosts(std::move(measured));
  }

  // `fixed`: the arm of all rounds, in place of a guard.
  SimulatedRun Run(const std::vector<LoadStep>& steps,
                   std::optional<DraftArm> fixed);

 private:
  struct Session {
    DraftArm arm = DraftArm::kWide;
    orchestrator::RoundPace pace;
    int64_t rounds = 0;
    int id = 0;
  };
  struct Round {
    int nodes = 0;
    double chance = 0;
  };

  double Noise() { return std::max(0.3, 1.0 + noise_ * normal_(random_)); }
  double Measured(int32_t rows) {
    double sum = 0;
    for (int pass = 0; pass < kMeasuredPasses; ++pass) sum += Noise();
    return target_.pass_ms(rows) * sum / kMeasuredPasses;
  }
  Round Draft(const Session& session) const;
  int64_t Verify(const Round& round);
  static double Expected(const Round& round) {
    double sum = 1, path = 1;
    for (int i = 0; i < round.nodes; ++i) sum += path *= round.chance;
    return sum;
  }

  const SimulatedTarget target_;
  const SimulatedDrafter drafter_;
  const int groups_;
  const double noise_;
  orchestrator::PassCosts costs_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
};

inline GuardSimulation::Round GuardSimulation::Draft(
    const Session& session) const {
  Round round;
  // Not in the same order in all sessions.
  round.chance = drafter_.chances[(session.rounds + session.id) % 3];
  if (session.arm == DraftArm::kOff) return round;
  std::vector<float> claims;
  const double claim = std::min(0.99, round.chance * drafter_.claims);
  double path = 1;
  for (int i = 0; i < drafter_.max_nodes; ++i) {
    claims.push_back(static_cast<float>(path *= claim));
  }
  round.nodes =
      session.arm == DraftArm::kNarrow
          ? orchestrator::NarrowNodes(claims, costs_, session.pace.load())
          : orchestrator::WorthwhileNodes(claims, costs_, session.pace.load());
  return round;
}

inline int64_t GuardSimulation::Verify(const Round& round) {
  std::uniform_real_distribution<double> uniform(0, 1);
  int64_t tokens = 1;
  while (tokens <= round.nodes && uniform(random_) < round.chance) ++tokens;
  return tokens;
}

inline SimulatedRun GuardSimulation::Run(const std::vector<LoadStep>& steps,
                                         std::optional<DraftArm> fixed) {
  verifier::GoodputGuard guard;
  const absl::Time origin = absl::FromUnixSeconds(1000);
  const auto at = [&](double seconds) {
    return origin + absl::Seconds(seconds);
  };
  SimulatedRun run;
  std::vector<Session> sessions;
  double now = 0, start = 0;
  for (const LoadStep& step : steps) {
    const DraftArm arm = fixed.value_or(guard.arm());
    while (static_cast<int>(sessions.size()) < step.sessions) {
      Session& session = sessions.emplace_back();
      session.id = static_cast<int>(sessions.size());
      session.arm = arm;
    }
    sessions.resize(step.sessions);
    const int groups = std::min(groups_, step.sessions);
    const double end = start + step.seconds;
    std::array<double, kDraftArms> shares{};
    double expected_tokens = 0, expected_seconds = 0;
    now = start;
    for (int64_t turn = 0; now < end; ++turn) {
      verifier::GuardPass pass;
      std::vector<Session*> members;
      for (size_t i = turn % groups; i < sessions.size(); i += groups) {
        members.push_back(&sessions[i]);
      }
      std::vector<Round> rounds;
      int32_t rows = 0;
      bool drafts = false;
      for (Session* session : members) {
        rounds.push_back(Draft(*session));
        rows += 1 + rounds.back().nodes;
        drafts |= session->arm != DraftArm::kOff;
        ++pass.rounds[static_cast<size_t>(session->arm)];
      }
      // Where groups take turns, one drafts during the other's pass.
      const double drafting = drafts && groups == 1 ? drafter_.seconds : 0;
      const double forward = target_.pass_ms(rows) / 1e3;
      const double took = forward * Noise();
      pass.begin = at(now + drafting);
      pass.end = at(now + drafting + took);
      pass.sessions = pass.followers = static_cast<int>(sessions.size());
      pass.goes_on = true;
      std::vector<int64_t> tokens;
      double expected = 0;
      for (const Round& round : rounds) {
        tokens.push_back(Verify(round));
        pass.tokens += tokens.back();
        expected += Expected(round);
      }
      guard.Note(pass);
      if (now >= start + kSettle) {
        expected_tokens += expected;
        expected_seconds += drafting + forward;
        shares[static_cast<size_t>(members[0]->arm)] += drafting + forward;
      }
      now += drafting + took;
      for (size_t i = 0; i < members.size(); ++i) {
        Session& session = *members[i];
        RoundStats stats;
        stats.draft_rows = rounds[i].nodes;
        stats.pass_rows = rows;
        stats.pass_sessions = static_cast<int32_t>(members.size());
        stats.pass_time = absl::Seconds(took);
        if (groups > 1) stats.queue_time = stats.pass_time;
        session.pace.Note(stats, tokens[i], absl::Seconds(drafting),
                          stats.pass_time + stats.queue_time);
        ++session.rounds;
        session.arm = fixed.value_or(guard.arm());
      }
    }
    run.rates.push_back(expected_tokens / expected_seconds);
    for (double& share : shares) share /= expected_seconds;
    run.shares.push_back(shares);
    start = end;
  }
  return run;
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_SERVICES_VERIFIER_GUARD_SIMULATION_H_
