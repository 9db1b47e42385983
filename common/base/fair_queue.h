// FairQueue: a bounded queue that serves the owners of its items by deficit
// round robin: over time every owner with items waiting gets a share of the
// cost taken in proportion to its weight, however many items others push.
//
// An item that finds the queue full pushes out the newest items of the owner
// with the largest backlog (bytes or items, over its weight) while that exceeds
// the backlog of its own owner: a flood displaces its own items. The first item
// of an owner is compared without weights, so that even an owner of small
// weight gets in.
//
// Source: Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit
// Round-Robin" (SIGCOMM 1995); push-out after McKenney's stochastic fairness
// queueing (INFOCOM 1990).
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_BASE_FAIR_QUEUE_H_
#define FORETOKEN_COMMON_BASE_FAIR_QUEUE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
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
    if (!MakeRoom(item, pushed_out)) return std::nullopt;
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
    // Every turn gives an owner its share; the next to be served is the first
    // that can pay for its item. All full rounds of turns are taken at once, so
    // that the time of this does not depend on costs.
    const double never = std::numeric_limits<double>::infinity();
    double rounds = never;
    auto next = owners_.end();
    for (auto owner = owners_.begin(); owner != owners_.end(); ++owner) {
      owner->may_run = may_run(owner->name);
      const double needed = owner->may_run ? RoundsToPay(*owner) : never;
      if (needed < rounds) {
        rounds = needed;
        next = owner;
      }
    }
    if (next == owners_.end()) return std::nullopt;
    for (Owner& owner : owners_) {
      if (owner.may_run) owner.deficit += rounds * Share(owner);
    }
    while (owners_.begin() != next) {
      Owner& passed = owners_.front();
      if (passed.may_run) passed.deficit += Share(passed);
      owners_.splice(owners_.end(), owners_, owners_.begin());
    }
    next->deficit = std::max(0.0, next->deficit - Cost(*next));
    return TakeAt(next, next->items.begin());
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
    double deficit = 0;    // cost it may take
    bool may_run = false;  // scratch of Pop
    int64_t bytes = 0;
    std::list<Waiting> items = {};  // oldest first, never empty
  };
  using Owners = std::list<Owner>;  // whose turn is next, first

  typename Owners::iterator Find(const std::string& name) {
    return std::find_if(owners_.begin(), owners_.end(),
                        [&](const Owner& owner) { return owner.name == name; });
  }

  // Cost that the owner may take per turn.
  double Share(const Owner& owner) const {
    return owner.weight * static_cast<double>(quantum_);
  }
  static double Cost(const Owner& owner) {
    return static_cast<double>(owner.items.front().item.cost);
  }
  // Turns that the owner needs before it can pay for its first item.
  double RoundsToPay(const Owner& owner) const {
    return std::max(0.0,
                    std::ceil((Cost(owner) - owner.deficit) / Share(owner)));
  }

  // Pushes items out until `item` fits; false, with nothing pushed out, if it
  // cannot displace enough.
  //
  // Invariant: `items`, `bytes` and the backlogs describe the queue as if it
  // held `item` and had lost the victims so far. Nothing is removed before all
  // victims are known, so that a refused item changes nothing. An owner gives
  // an item only while its backlog exceeds that of the item's owner, which does
  // not change meanwhile, so the loop ends.
  bool MakeRoom(const FairItem& item, std::vector<T>& pushed_out) {
    if (item.bytes > limits_.bytes || limits_.items < 1) return false;
    // The items of an owner that stay; victims are chosen newest first.
    struct Backlog {
      typename Owners::iterator owner;
      typename std::list<Waiting>::iterator end;
      int64_t items = 0;
      int64_t bytes = 0;
    };
    Backlog own{owners_.end(), {}, 1, item.bytes};
    std::vector<Backlog> others;
    for (auto it = owners_.begin(); it != owners_.end(); ++it) {
      const auto count = static_cast<int64_t>(it->items.size());
      if (it->name == item.owner) {
        own = {it, it->items.end(), own.items + count, own.bytes + it->bytes};
      } else {
        others.push_back({it, it->items.end(), count, it->bytes});
      }
    }
    const bool weighted = own.owner != owners_.end();
    int64_t items = items_ + 1;
    int64_t bytes = bytes_ + item.bytes;
    while (items > limits_.items || bytes > limits_.bytes) {
      const bool by_items = items > limits_.items;
      const auto load = [&](const Backlog& backlog, double weight) {
        const int64_t amount = by_items ? backlog.items : backlog.bytes;
        return static_cast<double>(amount) / (weighted ? weight : 1);
      };
      Backlog* heaviest = nullptr;
      double most = load(own, item.weight);
      for (Backlog& backlog : others) {
        const double its = load(backlog, backlog.owner->weight);
        if (its <= most) continue;
        most = its;
        heaviest = &backlog;
      }
      if (heaviest == nullptr) return false;
      --heaviest->end;
      --heaviest->items;
      --items;
      heaviest->bytes -= heaviest->end->item.bytes;
      bytes -= heaviest->end->item.bytes;
    }
    for (const Backlog& backlog : others) {
      auto at = backlog.end;
      for (auto left = std::distance(at, backlog.owner->items.end()); left > 0;
           --left) {
        pushed_out.push_back(TakeAt(backlog.owner, at++));
      }
    }
    return true;
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
