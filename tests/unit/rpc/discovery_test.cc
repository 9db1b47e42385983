#include "common/rpc/discovery.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// Says what a test wants.
class FakeResolver final : public Resolver {
 public:
  absl::StatusOr<std::vector<std::string>> Resolve(
      const std::string& host_port) override {
    absl::MutexLock lock(&mu_);
    ++asked_[host_port];
    const auto may_answer = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return blocked_ != host_port;
    };
    mu_.Await(absl::Condition(&may_answer));
    const auto found = addresses_.find(host_port);
    if (found == addresses_.end()) return absl::NotFoundError("no such host");
    return found->second;
  }

  void Set(const std::string& host_port, std::vector<std::string> addresses) {
    absl::MutexLock lock(&mu_);
    addresses_[host_port] = std::move(addresses);
  }
  void Forget(const std::string& host_port) {
    absl::MutexLock lock(&mu_);
    addresses_.erase(host_port);
  }
  // Look-ups of this name hang until another one is blocked; "": none.
  void Block(const std::string& host_port) {
    absl::MutexLock lock(&mu_);
    blocked_ = host_port;
  }
  // Look-ups that have begun.
  int asked(const std::string& host_port) {
    absl::MutexLock lock(&mu_);
    return asked_[host_port];
  }

 private:
  absl::Mutex mu_;
  std::map<std::string, std::vector<std::string>> addresses_
      ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> asked_ ABSL_GUARDED_BY(mu_);
  std::string blocked_ ABSL_GUARDED_BY(mu_);
};

class DiscoveryTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& targets) {
    options_.interval = absl::Milliseconds(1);
    options_.resolver = resolver_;
    discovery_ = std::make_unique<Discovery>(
        options_, targets, [this](const std::vector<Member>& members) {
          absl::MutexLock lock(&mu_);
          members_.clear();
          for (const Member& member : members) {
            members_.push_back(absl::StrCat(member.address, " ", member.host));
          }
          ++reports_;
        });
  }
  std::vector<std::string> members() {
    absl::MutexLock lock(&mu_);
    return members_;
  }
  int reports() {
    absl::MutexLock lock(&mu_);
    return reports_;
  }
  // Waits for two look-ups of the name: the first one is then reported.
  bool ResolvedAgain(const std::string& host_port = "name:1") {
    const int before = resolver_->asked(host_port);
    return Eventually(
        [&] { return resolver_->asked(host_port) >= before + 2; });
  }

  DiscoveryOptions options_;
  std::shared_ptr<FakeResolver> resolver_ = std::make_shared<FakeResolver>();
  absl::Mutex mu_;
  std::vector<std::string> members_ ABSL_GUARDED_BY(mu_);
  int reports_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<Discovery> discovery_;
};

TEST(TargetTest, IsAnAddressOrADnsName) {
  for (const char* good :
       {"host:1", "unix:/s", "dns:///host:1", "dns:///a.b-c.d:50051"}) {
    EXPECT_THAT(ValidateTarget(good), IsOk()) << good;
  }
  for (const char* bad : {"dns:///host", "dns:///:1", "dns:///host:0",
                          "dns:///unix:/s", "dns:///", "dns:/host:1", "host"}) {
    EXPECT_THAT(ValidateTarget(bad),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad)))
        << bad;
  }
  EXPECT_EQ(AddressOf("dns:///host:1"), "host:1");
  EXPECT_EQ(AddressOf("host:1"), "host:1");
}

TEST_F(DiscoveryTest, GivenAddressesAreMembersAtOnceAndAreNotResolved) {
  Start({"b:1", "a:2", "b:1"});
  EXPECT_THAT(members(), ElementsAre("b:1 ", "a:2 "));
  EXPECT_EQ(reports(), 1);
}

TEST_F(DiscoveryTest, ANameIsResolvedAgainAndAgain) {
  resolver_->Set("name:1", {"10.0.0.2:1", "10.0.0.1:1"});
  Start({"z:9", "dns:///name:1"});
  ASSERT_TRUE(ResolvedAgain());
  EXPECT_THAT(members(),
              ElementsAre("z:9 ", "10.0.0.1:1 name", "10.0.0.2:1 name"));
  resolver_->Set("name:1", {"10.0.0.3:1", "10.0.0.2:1"});
  ASSERT_TRUE(ResolvedAgain());
  EXPECT_THAT(members(),
              ElementsAre("z:9 ", "10.0.0.2:1 name", "10.0.0.3:1 name"));
}

TEST_F(DiscoveryTest, ANameThatDoesNotResolveKeepsItsAddresses) {
  resolver_->Set("name:1", {"10.0.0.1:1"});
  resolver_->Set("other:1", {"10.0.0.2:1"});
  Start({"dns:///name:1", "dns:///other:1"});
  ASSERT_TRUE(ResolvedAgain() && ResolvedAgain("other:1"));
  resolver_->Forget("name:1");
  resolver_->Set("other:1", {});
  ASSERT_TRUE(ResolvedAgain() && ResolvedAgain("other:1"));
  EXPECT_THAT(members(), ElementsAre("10.0.0.1:1 name", "10.0.0.2:1 other"));
}

TEST_F(DiscoveryTest, ANameThatHangsHoldsNobodyUp) {
  resolver_->Set("name:1", {"10.0.0.1:1"});
  resolver_->Set("other:1", {"10.0.0.2:1"});
  resolver_->Block("name:1");
  Start({"a:1", "dns:///name:1", "dns:///other:1"});
  EXPECT_TRUE(Eventually([&] { return resolver_->asked("name:1") == 1; }));
  ASSERT_TRUE(ResolvedAgain("other:1"));
  EXPECT_THAT(members(), ElementsAre("a:1 ", "10.0.0.2:1 other"));
  resolver_->Block("");
  ASSERT_TRUE(ResolvedAgain());
  EXPECT_THAT(members(),
              ElementsAre("a:1 ", "10.0.0.1:1 name", "10.0.0.2:1 other"));
}

TEST_F(DiscoveryTest, ItsEndWaitsForNoLookUpAndNothingIsReportedAfterIt) {
  resolver_->Block("name:1");
  Start({"a:1", "dns:///name:1"});
  ASSERT_TRUE(Eventually([&] { return resolver_->asked("name:1") == 1; }));
  discovery_.reset();
  EXPECT_EQ(reports(), 1);
  resolver_->Set("name:1", {"10.0.0.1:1"});
  resolver_->Block("");
  // The thread, which shares the resolver, ends. (Two are the fixture's.)
  EXPECT_TRUE(Eventually([&] { return resolver_.use_count() == 2; }));
  EXPECT_EQ(reports(), 1);
  EXPECT_EQ(resolver_->asked("name:1"), 1);
}

TEST_F(DiscoveryTest, AnAddressCountsOnceAndTheirNumberIsBounded) {
  options_.max_members = 3;
  resolver_->Set("name:1", {"10.0.0.5:1", "10.0.0.1:1", "10.0.0.4:1"});
  resolver_->Set("other:1", {"10.0.0.5:1", "10.0.0.3:1"});
  Start({"10.0.0.1:1", "dns:///name:1", "dns:///other:1"});
  ASSERT_TRUE(ResolvedAgain() && ResolvedAgain("other:1"));
  EXPECT_THAT(members(), ElementsAre("10.0.0.1:1 ", "10.0.0.3:1 other",
                                     "10.0.0.4:1 name"));
}

TEST(SystemResolverTest, KnowsLocalhostAndNoInvalidName) {
  const std::shared_ptr<Resolver> resolver = SystemResolver();
  const auto local = resolver->Resolve("localhost:7");
  ASSERT_THAT(local, IsOk());
  EXPECT_THAT(*local, Contains(::testing::AnyOf("127.0.0.1:7", "[::1]:7")));
  const auto literal = resolver->Resolve("[::1]:7");
  ASSERT_THAT(literal, IsOk());
  EXPECT_THAT(*literal, ElementsAre("[::1]:7"));
  // One family alone, in whatever order the system gives them.
  const bool v6 = local->front().front() == '[';
  EXPECT_THAT(*local, Each(StartsWith(v6 ? "[" : "127.")));
  // Too long for a label: refused here, without a name server.
  EXPECT_THAT(resolver->Resolve(std::string(70, 'a') + ":7"), Not(IsOk()));
}

}  // namespace
}  // namespace foretoken::rpc
