#include "common/config/flags.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// One flag of every kind.
struct Fields {
  int32_t nodes = 64;
  int64_t bytes = 1000;
  double ratio = 0.5;
  bool reflection = false;
  absl::Duration drain = absl::Seconds(30);
  std::string model = "none";
  std::string backend = "auto";
  std::vector<std::string> verifiers = {"a"};
  std::string password;
  Flags flags{"svc", "A service."};

  Fields() {
    flags.Int("max-tree-nodes", &nodes, {1, 256}, "Draft nodes");
    flags.Int64("cache-bytes", &bytes, {0, int64_t{1} << 40}, "Cache");
    flags.Double("ratio", &ratio, {0.0, 1.0}, "Ratio");
    flags.Bool("reflection", &reflection, "Reflection");
    flags.Duration("drain", &drain, {absl::Seconds(1), absl::Hours(1)},
                   "Drain time");
    flags.String("model", &model, "Model");
    flags.Choice("backend", &backend, {"auto", "cpu", "cuda"}, "Engine");
    flags.List("verifiers", &verifiers, "Addresses");
    flags.Secret("password", &password, "Password of the store");
  }

  absl::Status Parse(std::vector<const char*> args) {
    args.insert(args.begin(), "svc");
    return flags.Parse(static_cast<int>(args.size()), args.data());
  }
};

class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);
  }
  ~ScopedEnv() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(FlagsTest, DefaultsStandWhenNothingIsGiven) {
  Fields f;
  FORETOKEN_ASSERT_OK(f.Parse({}));
  EXPECT_EQ(f.nodes, 64);
  EXPECT_EQ(f.drain, absl::Seconds(30));
  EXPECT_FALSE(f.reflection);
  EXPECT_THAT(f.verifiers, ElementsAre("a"));
}

TEST(FlagsTest, EveryKindIsReadFromTheCommandLine) {
  Fields f;
  FORETOKEN_ASSERT_OK(
      f.Parse({"--max-tree-nodes", "7", "--cache-bytes=123456789012",
               "--ratio=0.25", "--reflection", "--drain=250s", "--model=x y",
               "--backend", "cpu", "--verifiers=a:1,b:2"}));
  EXPECT_EQ(f.nodes, 7);
  EXPECT_EQ(f.bytes, 123456789012);
  EXPECT_EQ(f.ratio, 0.25);
  EXPECT_TRUE(f.reflection);
  EXPECT_EQ(f.drain, absl::Seconds(250));
  EXPECT_EQ(f.model, "x y");
  EXPECT_EQ(f.backend, "cpu");
  EXPECT_THAT(f.verifiers, ElementsAre("a:1", "b:2"));
}

TEST(FlagsTest, ABoolTakesAValueToo) {
  Fields f;
  f.reflection = true;
  FORETOKEN_ASSERT_OK(f.Parse({"--reflection=false", "--ratio=1"}));
  EXPECT_FALSE(f.reflection);
}

TEST(FlagsTest, AStringMayBeEmpty) {
  Fields f;
  FORETOKEN_ASSERT_OK(f.Parse({"--model=", "--ratio=1"}));
  EXPECT_EQ(f.model, "");
  EXPECT_EQ(f.ratio, 1.0);
}

TEST(FlagsTest, AListMayRepeatItsFlag) {
  Fields f;
  FORETOKEN_ASSERT_OK(f.Parse({"--verifiers", "a,b", "--verifiers=c"}));
  EXPECT_THAT(f.verifiers, ElementsAre("a", "b", "c"));
}

TEST(FlagsTest, FlagWinsOverEnvironmentWinsOverDefault) {
  const ScopedEnv nodes("FORETOKEN_MAX_TREE_NODES", "9");
  const ScopedEnv model("FORETOKEN_MODEL", "env");
  const ScopedEnv list("FORETOKEN_VERIFIERS", "x:1, y:2");
  Fields f;
  FORETOKEN_ASSERT_OK(f.Parse({"--max-tree-nodes=10"}));
  EXPECT_EQ(f.nodes, 10);
  EXPECT_EQ(f.model, "env");
  EXPECT_EQ(f.backend, "auto");
  EXPECT_THAT(f.verifiers, ElementsAre("x:1", "y:2"));
}

TEST(FlagsTest, EveryBadFieldIsReportedByFlagAndEnvironmentName) {
  const ScopedEnv ratio("FORETOKEN_RATIO", "nan");
  Fields f;
  f.flags.Require("model", [] { return std::string("want a model"); });
  const absl::Status status =
      f.Parse({"--max-tree-nodes=0", "--cache-bytes=99999999999999999999",
               "--drain=5", "--backend=tpu", "--reflection=maybe"});
  EXPECT_THAT(
      status,
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(
              HasSubstr("--max-tree-nodes=0 (FORETOKEN_MAX_TREE_NODES): want "
                        "1..256"),
              HasSubstr("--cache-bytes=99999999999999999999"),
              HasSubstr("--ratio=nan (FORETOKEN_RATIO): want 0..1"),
              HasSubstr("--drain=5 (FORETOKEN_DRAIN): want a duration with "
                        "its unit, 1s..1h"),
              HasSubstr("--backend=tpu (FORETOKEN_BACKEND): want "
                        "auto|cpu|cuda"),
              HasSubstr("--reflection=maybe (FORETOKEN_REFLECTION): want true "
                        "or false"),
              HasSubstr("--model (FORETOKEN_MODEL): want a model"))));
  EXPECT_EQ(ExitWithError(status), 2);
}

TEST(FlagsTest, AnUnknownFlagIsRefused) {
  Fields f;
  EXPECT_THAT(f.Parse({"--max-tree-node=3"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--max-tree-node")));
  EXPECT_THAT(f.Parse({"--max-tree-node", "3"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("unknown: --max-tree-node 3\n")));
}

TEST(FlagsTest, HelpNamesFlagsAndTheirEnvironmentAndExitsWithZero) {
  Fields f;
  const absl::Status status = f.Parse({"--help"});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled,
                               AllOf(HasSubstr("--max-tree-nodes"),
                                     HasSubstr("FORETOKEN_MAX_TREE_NODES"),
                                     HasSubstr("FORETOKEN_PASSWORD"))));
  EXPECT_EQ(ExitWithError(status), 0);
}

TEST(FlagsTest, UrlsAreMaskedAndTakeUsersFromTheEnvironmentAlone) {
  const auto parse = [](Flags& flags, std::string* url, const char* argument) {
    flags.Url("store-url", url, "The store");
    const char* const argv[] = {"svc", argument};
    return flags.Parse(argument == nullptr ? 1 : 2, argv);
  };
  std::string url;
  Flags plain("svc", "");
  FORETOKEN_ASSERT_OK(parse(plain, &url, "--store-url=redis://host"));
  EXPECT_EQ(url, "redis://host");
  EXPECT_THAT(plain.Changes(), HasSubstr("store-url=****"));
  Flags leaking("svc", "");
  const absl::Status refused =
      parse(leaking, &url, "--store-url=redis://:hunter2@host");
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("store-url"), Not(HasSubstr("hunter2"))));
  const ScopedEnv with_user("FORETOKEN_STORE_URL", "redis://:hunter2@host");
  Flags masked("svc", "");
  FORETOKEN_ASSERT_OK(parse(masked, &url, nullptr));
  EXPECT_EQ(url, "redis://:hunter2@host");
  EXPECT_THAT(masked.Changes(), Not(HasSubstr("hunter2")));
}

TEST(FlagsTest, SecretsComeFromTheEnvironmentAloneAndAreMasked) {
  const ScopedEnv password("FORETOKEN_PASSWORD", "hunter2");
  Fields f;
  FORETOKEN_ASSERT_OK(f.Parse({"--max-tree-nodes=3"}));
  EXPECT_EQ(f.password, "hunter2");
  EXPECT_THAT(f.flags.Changes(),
              AllOf(HasSubstr("password=****"), Not(HasSubstr("hunter2"))));
  Fields g;
  EXPECT_FALSE(g.Parse({"--password=x"}).ok());
}

TEST(FlagsTest, ChangesAreTheValuesThatAreNotTheDefaults) {
  Fields none;
  FORETOKEN_ASSERT_OK(none.Parse({"--max-tree-nodes=64", "--model", "none"}));
  EXPECT_EQ(none.flags.Changes(), "defaults");
  const ScopedEnv drain("FORETOKEN_DRAIN", "250s");
  Fields some;
  FORETOKEN_ASSERT_OK(
      some.Parse({"--backend=auto", "--verifiers=a:1,b:2",
                  "--model=", "--max-tree-nodes=7", "--reflection"}));
  EXPECT_EQ(some.flags.Changes(),
            "max-tree-nodes=7 reflection=true drain=250s model= "
            "verifiers=a:1,b:2");
}

TEST(FlagsTest, GivenMeansHereOrInTheEnvironment) {
  const ScopedEnv model("FORETOKEN_MODEL", "env");
  Fields f;
  FORETOKEN_ASSERT_OK(f.Parse({"--max-tree-nodes=64"}));
  EXPECT_FALSE(f.flags.Given("verifiers"));
  EXPECT_TRUE(f.flags.Given("model"));
  EXPECT_TRUE(f.flags.Given("max-tree-nodes"));
  EXPECT_FALSE(f.flags.Given("backend"));
}

TEST(FlagsTest, VersionIsPrintedAndExitsWithZero) {
  Fields f;
  f.flags.Version("svc 1.2 (commit abc)");
  const absl::Status status = f.Parse({"--version"});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled,
                               HasSubstr("svc 1.2 (commit abc)\n")));
  EXPECT_EQ(ExitWithError(status), 0);
}

}  // namespace
}  // namespace foretoken
