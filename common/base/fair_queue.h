// FairQueue: a bounded queue that serves the owners of its items by deficit
// round robin: over time every owner with items waiting gets a share of the
// cost taken in proportion to its weight, however many items others push.
//
// An item that finds the queue full pushes out the newest item of the owner
// with the largest backlog (bytes or items, over its weight), if that exceeds
// the backlog of its own owner: a flood displaces its own items.
//
// Source: Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit
// Round-Robin" (SIGCOMM 1995); push-out after McKenney's stochastic fairness
// queueing (INFOCOM 1990).
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_BASE_FAIR_QUEUE_H_
#define FORETOKEN_COMMON_BASE_FAIR_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace foretoken {

struct FairQueueLimits {
  int64_t items = 64;
  int64_t bytes = int64_t{64} << 20;
};

// An item as the queue sees it.
struct FairItem {
  std::string owner;
  double weight = 1;  // of the owner, above 0
  int64_t cost = 1;   // at least 1; in any unit, the same for all
  int64_t bytes = 0;  // held while it waits
  absl::Time deadline = absl::InfiniteFuture();
};

template <typename T>
class FairQueue {
 public:
  using Ticket = uint64_t;

  // `quantum`: cost that an owner of weight 1 may take in its turn.
  FairQueue(const FairQueueLimits& limits, int64_t quantum)
      : limits_(limits), quantum_(quantum) {}

  // Returns the ticket of the queued item, or nullopt, with `value` unchanged,
  // if it was refused. Items displaced by it are appended to `pushed_out`.
  std::optional<Ticket> Push(const FairItem& item, T& value,
                             std::vector<T>& pushed_out) {
    if (item.bytes > limits_.bytes || limits_.items < 1) return std::nullopt;
    while (items_ >= limits_.items || bytes_ + item.bytes > limits_.bytes) {
      const bool by_items = items_ >= limits_.items;
      const auto load = [by_items](const Owner& owner) {
        return (by_items ? static_cast<double>(owner.items.size())
                         : static_cast<double>(owner.bytes)) /
               owner.weight;
      };
      const auto heaviest = std::max_element(
          owners_.begin(), owners_.end(),
          [&](const Owner& a, const Owner& b) { return load(a) < load(b); });
      const auto own = Find(item.owner);
      const double own_load =
          (own == owners_.end() ? 0 : load(*own)) +
          (by_items ? 1.0 : static_cast<double>(item.bytes)) / item.weight;
      if (heaviest == own || load(*heaviest) <= own_load) return std::nullopt;
      pushed_out.push_back(TakeAt(heaviest, std::prev(heaviest->items.end())));
    }
    auto owner = Find(item.owner);
    if (owner == owners_.end()) {
      owner = owners_.insert(owners_.end(), Owner{.name = item.owner});
    }
    owner->weight = item.weight;
    owner->bytes += item.bytes;
    const Ticket ticket = next_ticket_++;
    owner->items.push_back({ticket, item, std::move(value)});
    ++items_;
    bytes_ += item.bytes;
    return ticket;
  }

  // The next item of the owners that `may_run` accepts; nullopt if there is
  // none.
  template <typename MayRun>
  std::optional<T> Pop(const MayRun& may_run) {
    size_t passed_over = 0;
    while (passed_over < owners_.size()) {
      const auto owner = owners_.begin();
      if (!may_run(owner->name)) {
        ++passed_over;
      } else if (owner->deficit >= owner->items.front().item.cost) {
        owner->deficit -= owner->items.front().item.cost;
        return TakeAt(owner, owner->items.begin());
      } else {
        passed_over = 0;
        owner->deficit += std::max<int64_t>(
            static_cast<int64_t>(owner->weight * static_cast<double>(quantum_)),
            1);
      }
      owners_.splice(owners_.end(), owners_, owner);
    }
    return std::nullopt;
  }

  // Takes an item out; nullopt if it no longer waits.
  std::optional<T> Remove(Ticket ticket) {
    for (auto owner = owners_.begin(); owner != owners_.end(); ++owner) {
      for (auto it = owner->items.begin(); it != owner->items.end(); ++it) {
        if (it->ticket == ticket) return TakeAt(owner, it);
      }
    }
    return std::nullopt;
  }

  // Takes out the items whose deadline has passed.
  std::vector<T> TakeExpired(absl::Time now) {
    std::vector<T> expired;
    for (auto owner = owners_.begin(); owner != owners_.end();) {
      const auto current = owner++;
      std::vector<Ticket> late;
      for (const Waiting& waiting : current->items) {
        if (waiting.item.deadline <= now) late.push_back(waiting.ticket);
      }
      for (const Ticket ticket : late) expired.push_back(*Remove(ticket));
    }
    return expired;
  }

  // Earliest deadline of a waiting item; InfiniteFuture if none waits.
  absl::Time NextDeadline() const {
    absl::Time next = absl::InfiniteFuture();
    for (const Owner& owner : owners_) {
      for (const Waiting& waiting : owner.items) {
        next = std::min(next, waiting.item.deadline);
      }
    }
    return next;
  }

  int64_t size() const { return items_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Waiting {
    Ticket ticket;
    FairItem item;
    T value;
  };
  struct Owner {
    std::string name;
    double weight = 1;
    int64_t deficit = 0;
    int64_t bytes = 0;
    std::list<Waiting> items = {};  // oldest first, never empty
  };
  using Owners = std::list<Owner>;  // whose turn is next, first

  typename Owners::iterator Find(const std::string& name) {
    return std::find_if(owners_.begin(), owners_.end(),
                        [&](const Owner& owner) { return owner.name == name; });
  }

  // An owner without items leaves, and its deficit with it.
  T TakeAt(typename Owners::iterator owner,
           typename std::list<Waiting>::iterator at) {
    T value = std::move(at->value);
    --items_;
    bytes_ -= at->item.bytes;
    owner->bytes -= at->item.bytes;
    owner->items.erase(at);
    if (owner->items.empty()) owners_.erase(owner);
    return value;
  }

  const FairQueueLimits limits_;
  const int64_t quantum_;
  Owners owners_;
  int64_t items_ = 0;
  int64_t bytes_ = 0;
  Ticket next_ticket_ = 1;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_FAIR_QUEUE_H_
