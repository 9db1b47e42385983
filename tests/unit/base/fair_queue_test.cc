#include "common/base/fair_queue.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Queue = FairQueue<std::string>;

const auto kAll = [](const std::string&) { return true; };

std::optional<Queue::Ticket> Push(Queue& queue, const FairItem& item,
                                  std::string value,
                                  std::vector<std::string>* out = nullptr) {
  std::vector<std::string> pushed_out;
  const auto ticket = queue.Push(item, value, pushed_out);
  if (out != nullptr) *out = pushed_out;
  return ticket;
}

std::string PopAll(Queue& queue) {
  std::string all;
  while (const auto value = queue.Pop(kAll)) all += *value;
  return all;
}

TEST(FairQueueTest, OneOwnerIsServedInOrder) {
  Queue queue({}, 10);
  for (const char* value : {"a", "b", "c"}) {
    EXPECT_TRUE(Push(queue, {.owner = "x", .cost = 100}, value));
  }
  EXPECT_EQ(PopAll(queue), "abc");
  EXPECT_EQ(queue.size(), 0);
}

TEST(FairQueueTest, AFloodTakesTurnsWithASingleItem) {
  Queue queue({.items = 1000}, 10);
  for (int i = 0; i < 100; ++i)
    Push(queue, {.owner = "flood", .cost = 10}, "f");
  Push(queue, {.owner = "other", .cost = 10}, "o");
  EXPECT_LE(PopAll(queue).find('o'), 1u);
}

// Shares of what was taken, by cost, whatever the sizes of items.
TEST(FairQueueTest, SharesFollowWeightsNotNumbersOrSizes) {
  Queue queue({.items = 100000}, 50);
  for (int i = 0; i < 30000; ++i) {
    Push(queue, {.owner = "a", .weight = 1, .cost = 1}, "a");
    if (i % 2 == 0) {
      Push(queue, {.owner = "b", .weight = 2, .cost = 100}, "b");
    }
    if (i % 10 == 0) {
      Push(queue, {.owner = "c", .weight = 1, .cost = 37}, "c");
    }
  }
  const std::map<char, int64_t> cost = {{'a', 1}, {'b', 100}, {'c', 37}};
  std::map<char, int64_t> taken;
  for (int64_t total = 0; total < 80000;) {
    const std::string value = *queue.Pop(kAll);
    taken[value[0]] += cost.at(value[0]);
    total += cost.at(value[0]);
  }
  EXPECT_NEAR(taken['a'], 20000, 200);
  EXPECT_NEAR(taken['b'], 40000, 200);
  EXPECT_NEAR(taken['c'], 20000, 200);
}

TEST(FairQueueTest, OwnersThatMayNotRunArePassedOver) {
  Queue queue({}, 10);
  Push(queue, {.owner = "busy", .cost = 1}, "b");
  Push(queue, {.owner = "free", .cost = 1000}, "f");
  const auto free = [](const std::string& owner) { return owner == "free"; };
  EXPECT_EQ(queue.Pop(free), "f");
  EXPECT_EQ(queue.Pop(free), std::nullopt);
  EXPECT_EQ(queue.Pop(kAll), "b");
}

TEST(FairQueueTest, AFullQueuePushesOutTheHeaviestOwnersNewest) {
  Queue queue({.items = 3}, 10);
  std::vector<std::string> out;
  Push(queue, {.owner = "flood"}, "1");
  Push(queue, {.owner = "flood"}, "2");
  Push(queue, {.owner = "flood"}, "3");
  EXPECT_FALSE(Push(queue, {.owner = "flood"}, "4", &out));
  EXPECT_THAT(out, IsEmpty());
  EXPECT_TRUE(Push(queue, {.owner = "other"}, "o", &out));
  EXPECT_THAT(out, ElementsAre("3"));
  // At equal loads nobody is pushed out.
  EXPECT_FALSE(Push(queue, {.owner = "other"}, "p", &out));
  EXPECT_TRUE(Push(queue, {.owner = "third"}, "t", &out));
  EXPECT_THAT(out, ElementsAre("2"));
  EXPECT_FALSE(Push(queue, {.owner = "fourth"}, "x", &out));
  EXPECT_EQ(queue.size(), 3);
}

TEST(FairQueueTest, BytesAreBounded) {
  Queue queue({.items = 100, .bytes = 100}, 10);
  std::vector<std::string> out;
  EXPECT_FALSE(Push(queue, {.owner = "a", .bytes = 101}, "x"));
  EXPECT_TRUE(Push(queue, {.owner = "a", .bytes = 60}, "1"));
  EXPECT_TRUE(Push(queue, {.owner = "a", .bytes = 40}, "2"));
  EXPECT_TRUE(Push(queue, {.owner = "b", .bytes = 30}, "3", &out));
  EXPECT_THAT(out, ElementsAre("2"));
  EXPECT_EQ(queue.bytes(), 90);
  PopAll(queue);
  EXPECT_EQ(queue.bytes(), 0);
}

TEST(FairQueueTest, NobodyIsPushedOutForAnItemThatDoesNotFitAnyway) {
  Queue queue({.items = 100, .bytes = 100}, 10);
  std::vector<std::string> out;
  Push(queue, {.owner = "a", .bytes = 40}, "1");
  Push(queue, {.owner = "a", .bytes = 11}, "2");
  Push(queue, {.owner = "b", .bytes = 49}, "3");
  EXPECT_FALSE(Push(queue, {.owner = "c", .bytes = 50}, "4", &out));
  EXPECT_THAT(out, IsEmpty());
  EXPECT_EQ(queue.size(), 3);
}

TEST(FairQueueTest, NoWeightKeepsTheFirstItemOfOthersOut) {
  for (const double weight : {0.01, 1.0, 100.0}) {
    Queue queue({.items = 4}, 10);
    for (const char* value : {"1", "2", "3", "4"}) {
      Push(queue, {.owner = "flood", .weight = 100}, value);
    }
    std::vector<std::string> out;
    EXPECT_TRUE(Push(queue, {.owner = "x", .weight = weight}, "x", &out));
    EXPECT_THAT(out, ElementsAre("4"));
  }
}

// Otherwise one request of a great cost would hold the queue's lock for long.
TEST(FairQueueTest, TheTimeOfAPopDoesNotDependOnCost) {
  constexpr int64_t kCost = int64_t{1} << 62;
  Queue queue({.items = 64}, 1);
  for (int i = 0; i < 64; ++i) {
    const std::string owner = std::to_string(i);
    Push(queue, {.owner = owner, .weight = 0.01, .cost = kCost}, owner + " ");
  }
  EXPECT_THAT(PopAll(queue), ::testing::StartsWith("0 1 2 3 "));
}

TEST(FairQueueTest, SmallWeightsAreKept) {
  Queue queue({.items = 100000}, 128);
  for (int i = 0; i < 20000; ++i) {
    Push(queue, {.owner = "a", .weight = 0.010}, "a");
    Push(queue, {.owner = "b", .weight = 0.015}, "b");
  }
  int64_t taken = 0;
  for (int i = 0; i < 25000; ++i) taken += *queue.Pop(kAll) == "a" ? 1 : 0;
  EXPECT_NEAR(taken, 10000, 10);
}

TEST(FairQueueTest, WhatIsCancelledOrLateLeavesAtOnce) {
  Queue queue({}, 10);
  const absl::Time start = absl::UnixEpoch();
  const auto at = [&](int s) { return start + absl::Seconds(s); };
  const auto a = Push(queue, {.owner = "x", .deadline = at(5)}, "a");
  Push(queue, {.owner = "x", .deadline = at(1)}, "b");
  Push(queue, {.owner = "y", .deadline = at(1)}, "c");
  Push(queue, {.owner = "y"}, "d");
  EXPECT_EQ(queue.NextDeadline(), at(1));
  EXPECT_THAT(queue.TakeExpired(at(1)), ElementsAre("b", "c"));
  EXPECT_EQ(queue.NextDeadline(), at(5));
  EXPECT_EQ(queue.Remove(*a), "a");
  EXPECT_EQ(queue.Remove(*a), std::nullopt);
  EXPECT_EQ(PopAll(queue), "d");
}

// Against a plain model of what waits.
TEST(FairQueueTest, NothingIsLostOrDoubled) {
  std::mt19937 random(3);
  FairQueue<int> queue({.items = 20, .bytes = 500}, 5);
  std::map<int, FairQueue<int>::Ticket> waiting;
  int next = 0;
  for (int step = 0; step < 20000; ++step) {
    const int dice = static_cast<int>(random() % 10);
    if (dice < 6) {
      FairItem item;
      item.owner = std::string(1, static_cast<char>('a' + random() % 5));
      item.cost = 1 + static_cast<int64_t>(random() % 30);
      item.bytes = static_cast<int64_t>(random() % 100);
      int value = next++;
      const int pushed = value;
      std::vector<int> out;
      const auto ticket = queue.Push(item, value, out);
      for (const int each : out) ASSERT_EQ(waiting.erase(each), 1u);
      if (ticket) waiting[pushed] = *ticket;
    } else if (dice < 9) {
      const auto value = queue.Pop(kAll);
      ASSERT_EQ(value.has_value(), !waiting.empty());
      if (value) {
        ASSERT_EQ(waiting.erase(*value), 1u);
      }
    } else if (!waiting.empty()) {
      const auto it = waiting.begin();
      ASSERT_EQ(queue.Remove(it->second), it->first);
      waiting.erase(it);
    }
    ASSERT_EQ(queue.size(), static_cast<int64_t>(waiting.size()));
  }
}

}  // namespace
}  // namespace foretoken
