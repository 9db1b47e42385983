#include "services/verifier/core/pass_shares.h"

#include <algorithm>
#include <limits>
#include <set>

namespace foretoken::verifier {
namespace {

// Prompt rows that a pass may always have, so that prompts get on.
constexpr int32_t kMinTextRows = 16;
// Prompt rows given to one caller at a time.
constexpr int64_t kTextSlice = 8;

}  // namespace

double PassShares::Served(const std::string& caller) const {
  const auto found = callers_.find(caller);
  return found == callers_.end()
             ? virtual_time_
             : std::max(found->second.served, virtual_time_);
}

void PassShares::Count(const std::vector<PassDemand>& demands) {
  for (auto& [name, caller] : callers_) {
    caller.round_rows = 0;
    caller.text_rows = 0;
    caller.in_flight = caller.present = false;
  }
  for (const PassDemand& demand : demands) {
    Caller& caller = callers_[demand.caller];
    caller.present = true;
    caller.weight = demand.weight;
    caller.round_rows += demand.round_rows;
    caller.text_rows += demand.text_rows;
    caller.in_flight |= demand.in_flight;
  }
  double least = std::numeric_limits<double>::infinity();
  for (auto it = callers_.begin(); it != callers_.end();) {
    Caller& caller = it->second;
    if (!caller.present) {
      it = callers_.erase(it);
      continue;
    }
    if (caller.round_rows > 0 || caller.text_rows > 0) {
      // Idle time earns no credit.
      caller.served = std::max(caller.served, virtual_time_);
      least = std::min(least, caller.served);
    }
    // Kept while the caller waits for its clients: RowLimit prices a pass by
    // what it usually asks for.
    if (caller.round_rows > 0) caller.usual_rows = caller.round_rows;
    ++it;
  }
  // The least served caller with work sets the clock. It never falls, since no
  // caller with work is below it.
  if (least < std::numeric_limits<double>::infinity()) virtual_time_ = least;
}

int32_t PassShares::RowLimit(const PassTiming& timing) const {
  // Shares depend on the weights of all who have work: sum them up first.
  double weights = 0;
  int callers = 0;
  bool any_text = false, any_round = false;
  for (const auto& [name, caller] : callers_) {
    const bool decodes = caller.round_rows > 0 || caller.in_flight;
    if (!decodes && caller.text_rows == 0) continue;
    any_round = any_round || decodes;
    any_text = any_text || caller.text_rows > 0;
    weights += caller.weight;
    ++callers;
  }
  // A single caller with only rounds or only prompts delays no other work.
  if (callers < 2 && !(any_text && any_round)) return rows_;
  double seconds = std::numeric_limits<double>::infinity();
  for (const auto& [name, caller] : callers_) {
    const bool decodes = caller.round_rows > 0 || caller.in_flight;
    if (!decodes && caller.text_rows == 0) continue;
    const int64_t rows = decodes
                             ? caller.usual_rows
                             : std::min<int64_t>(caller.text_rows, text_rows_);
    const double alone = timing.Seconds(static_cast<double>(rows));
    if (alone <= 0) continue;  // not measured yet
    const double share = caller.weight / weights;
    // Up to half of the limit goes to prompts (ChooseRounds). A caller that
    // decodes and reads a prompt gets the time of its rounds twice, so that
    // its own prompt does not take half of it from them.
    const bool both = decodes && caller.text_rows > 0;
    seconds = std::min(seconds, alone / share * (both ? 2 : 1));
  }
  // The most rows that take no longer, by bisection: times grow with rows.
  // `least` always fits (one row must), `most` never does.
  int32_t least = 1, most = rows_;
  if (timing.Seconds(most) <= seconds) return most;
  while (most - least > 1) {
    const int32_t middle = least + (most - least) / 2;
    (timing.Seconds(middle) <= seconds ? least : most) = middle;
  }
  return least;
}

std::vector<size_t> PassShares::ChooseRounds(
    const std::vector<PassDemand>& demands, const PassTiming& timing) {
  Count(demands);
  row_limit_ = RowLimit(timing);
  taken_ = 0;
  int64_t text = 0;
  std::map<std::string, std::vector<size_t>> queues;  // the next round last
  for (size_t i = 0; i < demands.size(); ++i) {
    text += demands[i].text_rows;
    if (demands[i].round_rows > 0) queues[demands[i].caller].push_back(i);
  }
  for (auto& [name, queue] : queues) {
    std::sort(queue.begin(), queue.end(), [&](size_t a, size_t b) {
      return demands[a].order > demands[b].order;
    });
  }
  // Prompts keep a part of the pass even if rounds could fill it; otherwise a
  // busy server would never admit anyone.
  budget_ = PassBudget(rows_, static_cast<int32_t>(std::min<int64_t>(
                                  {text, text_rows_, rows_ - 1,
                                   std::max(kMinTextRows, row_limit_ / 2)})));
  std::vector<size_t> chosen;
  std::set<std::string> begun;  // callers with a round in the pass
  while (!queues.empty()) {
    // The caller who has had least; of equals, the one that has waited longest.
    auto next = queues.end();
    for (auto it = queues.begin(); it != queues.end(); ++it) {
      if (next == queues.end()) {
        next = it;
        continue;
      }
      const double its = callers_[it->first].served;
      const double least = callers_[next->first].served;
      if (its < least ||
          (its == least && demands[it->second.back()].order <
                               demands[next->second.back()].order)) {
        next = it;
      }
    }
    const size_t index = next->second.back();
    const int32_t rows = demands[index].round_rows;
    // A caller's first round is always taken, or a limit below one round would
    // starve it.
    if (begun.count(next->first) > 0 && taken_ + rows > row_limit_) {
      queues.erase(next);
      continue;
    }
    if (!budget_.TakeRound(rows)) break;
    taken_ += rows;
    Charge(callers_[next->first], rows);
    chosen.push_back(index);
    begun.insert(next->first);
    next->second.pop_back();
    if (next->second.empty()) queues.erase(next);
  }
  return chosen;
}

void PassShares::Drop(const PassDemand& demand) {
  budget_.GiveBack(demand.round_rows);
  taken_ -= demand.round_rows;
  // A negative charge: the rows were not used.
  Charge(callers_[demand.caller], -int64_t{demand.round_rows});
}

std::vector<int32_t> PassShares::ChooseText(
    const std::vector<PassDemand>& demands) {
  std::vector<int32_t> rows(demands.size(), 0);
  // The prompts of one caller, oldest first.
  struct Prompts {
    std::vector<size_t> sessions;
    int64_t wanted = 0;
    int64_t granted = 0;
  };
  std::map<std::string, Prompts> prompts;
  int64_t wanted = 0;
  for (size_t i = 0; i < demands.size(); ++i) {
    if (demands[i].text_rows == 0) continue;
    Prompts& own = prompts[demands[i].caller];
    own.sessions.push_back(i);
    own.wanted += demands[i].text_rows;
    wanted += demands[i].text_rows;
  }
  int64_t left = budget_.TakeText(
      std::min<int64_t>(wanted, std::max(kMinTextRows, row_limit_ - taken_)));
  while (left > 0) {
    Caller* least = nullptr;
    Prompts* next = nullptr;
    for (auto& [name, own] : prompts) {
      Caller& caller = callers_[name];
      if (own.granted == own.wanted) continue;
      // Fewest rows served first, slice by slice: each slice is charged before
      // the next is given.
      if (least != nullptr && caller.served >= least->served) continue;
      least = &caller;
      next = &own;
    }
    const int64_t slice =
        std::min({kTextSlice, left, next->wanted - next->granted});
    next->granted += slice;
    left -= slice;
    Charge(*least, slice);
  }
  // Half of a caller's rows go to its prompt with the fewest rows left, so that
  // a short one need not wait for a long one; the rest go to the oldest.
  for (auto& [name, own] : prompts) {
    const auto give = [&, &own = own](size_t index, int64_t most) {
      const int64_t given =
          std::min({most, own.granted, demands[index].text_rows - rows[index]});
      rows[index] += static_cast<int32_t>(given);
      own.granted -= given;
    };
    const size_t shortest = *std::min_element(
        own.sessions.begin(), own.sessions.end(), [&](size_t a, size_t b) {
          return demands[a].text_rows < demands[b].text_rows;
        });
    give(shortest, (own.granted + 1) / 2);
    for (const size_t index : own.sessions) give(index, own.granted);
  }
  return rows;
}

}  // namespace foretoken::verifier
