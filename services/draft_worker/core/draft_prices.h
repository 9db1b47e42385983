// DraftPrices: what a draft costs its request, in tokens that its rounds would
// commit in the same time. What is expected to add fewer accepted tokens than
// it costs makes the request slower.
//
// Thread-compatible.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_PRICES_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_PRICES_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace foretoken::draft_worker {

struct DraftPrices {
  // Until something is known, those of a pair on a CPU whose draft model takes
  // a fifth of the target's time: chains of about five tokens.
  static constexpr double kUnknownPass = 0.3;
  static constexpr double kUnknownNode = 0.05;
  // A row's part of the time of a pass.
  static constexpr double kUnknownRowShare = 0.06;

  double pass = kUnknownPass;  // of the draft model, over one row
  double row = kUnknownPass * kUnknownRowShare;  // each further row of it
  // nodes[i]: draft node i + 1 in the target's pass; further ones cost what the
  // last entry says. Empty: kUnknownNode each.
  std::vector<double> nodes;

  double Node(size_t i) const {
    return nodes.empty() ? kUnknownNode : nodes[std::min(i, nodes.size() - 1)];
  }
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_PRICES_H_
