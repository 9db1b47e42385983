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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Says what a test wants.
class FakeResolver final : public Resolver {
 public:
  absl::StatusOr<std::vector<std::string>> Resolve(
      const std::string& host_port) override {
    absl::MutexLock lock(&mu_);
    ++asked_;
    const auto blocked = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !blocked_;
    };
    mu_.Await(absl::Condition(&blocked));
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
  void Block(bool blocked) {
    absl::MutexLock lock(&mu_);
    blocked_ = blocked;
  }
  int asked() {
    absl::MutexLock lock(&mu_);
    return asked_;
  }

 private:
  absl::Mutex mu_;
  std::map<std::string, std::vector<std::string>> addresses_
      ABSL_GUARDED_BY(mu_);
  bool blocked_ ABSL_GUARDED_BY(mu_) = false;
  int asked_ ABSL_GUARDED_BY(mu_) = 0;
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
  // Two reports more: the second one follows a resolution after this call.
  bool ResolvedAgain() {
    const int before = reports();
    return Eventually([&] { return reports() >= before + 2; });
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
  Start({"b:1", "a:2"});
  EXPECT_THAT(members(), ElementsAre("b:1 ", "a:2 "));
  EXPECT_EQ(resolver_->asked(), 0);
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
  ASSERT_TRUE(ResolvedAgain());
  resolver_->Forget("name:1");
  resolver_->Set("other:1", {});
  ASSERT_TRUE(ResolvedAgain());
  EXPECT_THAT(members(), ElementsAre("10.0.0.1:1 name", "10.0.0.2:1 other"));
}

TEST_F(DiscoveryTest, AHangingResolverHoldsNobodyUp) {
  resolver_->Block(true);
  Start({"a:1", "dns:///name:1"});
  EXPECT_THAT(members(), ElementsAre("a:1 "));
  EXPECT_TRUE(Eventually([&] { return resolver_->asked() == 1; }));
  EXPECT_EQ(reports(), 1);
  resolver_->Block(false);
  EXPECT_TRUE(ResolvedAgain());
}

TEST_F(DiscoveryTest, AnAddressCountsOnceAndTheirNumberIsBounded) {
  options_.max_members = 3;
  resolver_->Set("name:1", {"10.0.0.5:1", "10.0.0.1:1", "10.0.0.4:1"});
  resolver_->Set("other:1", {"10.0.0.5:1", "10.0.0.3:1"});
  Start({"10.0.0.1:1", "dns:///name:1", "dns:///other:1"});
  ASSERT_TRUE(ResolvedAgain());
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
  // Reserved by RFC 6761; without a name server, there is no answer at all.
  EXPECT_THAT(resolver->Resolve("foretoken.invalid:7"), Not(IsOk()));
}

}  // namespace
}  // namespace foretoken::rpc
