// PassShares: which rounds and which prompt rows go into the next pass.
//
// Callers share the verifier by weight, in rows: the caller who has had least
// for its weight goes first (start-time fair queueing), whatever the number of
// its sessions.
//
// Rows that share a pass are cheap until their products cost more than reading
// the weights. Beyond that, the many sessions of one caller, or a long prompt,
// would slow down the rounds of all others. So a pass takes no longer than any
// caller's own rounds would take alone, divided by the caller's share of the
// weights: no caller gets less than that share of the machine. Prompts of a
// caller count as much as its rounds. Every caller's first round and a few
// prompt rows always run. Without measured costs there is no such limit.
//
// Source: Goyal, Vin and Cheng, "Start-time Fair Queueing" (SIGCOMM 1996).
//
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_PASS_SHARES_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_PASS_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/engine/pass_budget.h"
#include "common/infer/pass_timing.h"

namespace foretoken::verifier {

// Rows that one admitted session could put into a pass.
struct PassDemand {
  std::string caller;
  double weight = 1;       // of the caller, above 0
  int32_t round_rows = 0;  // of its queued round; 0: none
  int64_t order = 0;       // position of that round in the queue
  int64_t text_rows = 0;   // prompt rows without KV
  // Its last answer is so recent that the next round must be on its way.
  bool in_flight = false;
};

class PassShares {
 public:
  // `rows` of a pass; besides rounds, at most `text_rows` of them for prompts.
  PassShares(int32_t rows, int32_t text_rows)
      : rows_(rows), text_rows_(text_rows), budget_(rows, 0) {}

  // Chooses the rounds of a pass: indices into `demands` (oldest session
  // first), in the order in which they were taken.
  std::vector<size_t> ChooseRounds(const std::vector<PassDemand>& demands,
                                   const PassTiming& timing);
  // A chosen round does not run after all. Before ChooseText.
  void Drop(const PassDemand& demand);
  // Chooses the prompt rows of the same pass, by index into the same demands.
  std::vector<int32_t> ChooseText(const std::vector<PassDemand>& demands);

  // Rows over weight that the caller has had; callers with less go first. Only
  // differences mean something.
  double Served(const std::string& caller) const;

 private:
  struct Caller {
    double weight = 1;
    double served = 0;
    int32_t round_rows = 0;  // queued now
    int64_t text_rows = 0;   // waiting now
    int32_t usual_rows = 0;  // of its rounds in the last pass that had some
    bool in_flight = false;
    bool present = false;
  };

  // Updates callers_ from the demands.
  void Count(const std::vector<PassDemand>& demands);
  // Maximum rows of a pass that leaves every caller its share.
  int32_t RowLimit(const PassTiming& timing) const;
  void Charge(Caller& caller, int64_t rows) {
    caller.served += static_cast<double>(rows) / caller.weight;
  }

  const int32_t rows_;
  const int32_t text_rows_;
  std::map<std::string, Caller> callers_;  // with admitted sessions
  double virtual_time_ = 0;  // least `served` of callers that had work
  // State of the pass being planned.
  PassBudget budget_;
  int32_t row_limit_ = 0;
  int32_t taken_ = 0;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_PASS_SHARES_H_
