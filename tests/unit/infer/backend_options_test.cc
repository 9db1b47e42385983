// The flags of a backend that name an instruction set or a type of KV.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/config/flags.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/factory/backend_factory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kShape[] =
    "--random-model=d_model=32,layers=1,heads=2,kv_heads=1,d_ff=32,vocab=64";

absl::Status Parse(std::vector<const char*> args, BackendOptions& options) {
  Flags flags("svc", "A service.");
  options.AddFlags(flags);
  args.insert(args.begin(), {"svc", kShape, "--threads=1"});
  return flags.Parse(static_cast<int>(args.size()), args.data());
}

TEST(CpuIsaTest, EveryNameIsAChoiceAndParses) {
  EXPECT_THAT(CpuIsaChoices(),
              ElementsAre("auto", "avx512bf16", "avx512vnni", "avx512",
                          "avxvnni", "avx2", "scalar"));
  const auto automatic = ParseCpuIsa("auto");
  FORETOKEN_ASSERT_OK(automatic);
  EXPECT_FALSE(automatic->has_value());
  for (size_t i = 0; i < std::size(kCpuIsaNames); ++i) {
    const auto isa = ParseCpuIsa(kCpuIsaNames[i]);
    FORETOKEN_ASSERT_OK(isa);
    EXPECT_EQ(*isa, static_cast<CpuIsa>(i));
  }
  for (const CpuIsa isa : SupportedCpuIsas()) {
    EXPECT_EQ((*SelectCpuOps(isa))->isa, isa);
    EXPECT_STREQ((*SelectCpuOps(isa))->name,
                 kCpuIsaNames[static_cast<int>(isa)]);
  }
  EXPECT_EQ((*SelectCpuOps(std::nullopt))->isa, SupportedCpuIsas().back());
}

#if defined(__x86_64__)
TEST(CpuIsaTest, FewRowsFetchAheadButOnAmd) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  ASSERT_THAT(text, HasSubstr("vendor_id"));
  EXPECT_EQ(FewRowsFetchAhead(), !absl::StrContains(text, "AuthenticAMD"));
}
#endif

TEST(CpuIsaTest, OtherNamesAreRefusedWithTheChoices) {
  for (const char* text : {"", "AVX2", "avx-512", "neon"}) {
    EXPECT_THAT(
        ParseCpuIsa(text).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(std::string("--isa=") + text + ":"),
                       HasSubstr(
                           "auto|avx512bf16|avx512vnni|avx512|avxvnni|avx2"))));
  }
}

TEST(CpuIsaTest, OneThatTheProcessorLacksIsRefusedWithWhatItHas) {
  const CpuOps* const old[] = {ScalarOps()};
  EXPECT_THAT(
      SelectCpuOps(CpuIsa::kAvx2, old).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("--isa=avx2: "), HasSubstr("only scalar"))));
  EXPECT_EQ(*SelectCpuOps(CpuIsa::kScalar, old), ScalarOps());
  EXPECT_EQ(*SelectCpuOps(std::nullopt, old), ScalarOps());
}

TEST(BackendOptionsTest, TheIsaFlagIsInTheFingerprint) {
  for (const CpuIsa isa : SupportedCpuIsas()) {
    const std::string name = kCpuIsaNames[static_cast<int>(isa)];
    BackendOptions options;
    FORETOKEN_ASSERT_OK(Parse({("--isa=" + name).c_str()}, options));
    const auto made = MakeBackend(options);
    FORETOKEN_ASSERT_OK(made);
    EXPECT_THAT((*made)->numerics_fingerprint(),
                HasSubstr(isa == CpuIsa::kAvx512Bf16 ? ";isa=avx512bf16;"
                                                     : ";isa=common;"));
  }
}

TEST(BackendOptionsTest, ABadIsaIsRefusedBeforeAnythingIsLoaded) {
  BackendOptions options;
  EXPECT_THAT(Parse({"--isa=sse2"}, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--isa=sse2 (FORETOKEN_ISA)"),
                             HasSubstr("avx512bf16"))));
  options = BackendOptions();
  options.model = "/nowhere";
  options.isa = "sse2";
  EXPECT_THAT(
      MakeBackend(options).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("--isa=sse2"), Not(HasSubstr("nowhere")))));
}

TEST(BackendOptionsTest, TheKvTypeFlagIsInTheFingerprint) {
  BackendOptions options;
  FORETOKEN_ASSERT_OK(Parse({"--kv-type=q8_0"}, options));
  auto made = MakeBackend(options);
  FORETOKEN_ASSERT_OK(made);
  EXPECT_THAT((*made)->numerics_fingerprint(),
              HasSubstr(";precision=bf16;kv=q8_0;"));
  options.kv_type = "auto";
  options.backend = "cpu";
  made = MakeBackend(options);
  FORETOKEN_ASSERT_OK(made);
  EXPECT_THAT((*made)->numerics_fingerprint(),
              HasSubstr(";precision=bf16;kv=bf16;"));
  EXPECT_THAT(Parse({"--kv-type=q4_0"}, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--kv-type=q4_0 (FORETOKEN_KV_TYPE)")));
  options.kv_type = "q4_0";
  EXPECT_THAT(MakeBackend(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--kv-type=q4_0: want auto|bf16|fp32|q8_0")));
}

TEST(BackendOptionsTest, AnIsaIsForTheCpu) {
  BackendOptions options;
  FORETOKEN_ASSERT_OK(Parse({"--isa=scalar", "--backend=cuda"}, options));
  EXPECT_THAT(MakeBackend(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--isa=scalar is for --backend=cpu only")));
}

TEST(BackendOptionsTest, LoadingReportsEveryByteThatItSaid) {
  // As stored, and converted with a part of its head, as draft models are.
  for (const char* conversion : {"keep", "q8_0"}) {
    SCOPED_TRACE(conversion);
    BackendOptions options;
    options.model = testing::SourcePath("tools/demo/target");
    options.backend = "cpu";
    options.threads = 2;
    options.conversion = conversion;
    if (options.conversion != "keep") options.head_size = 1024;
    int64_t all = 0, reported = 0, read = 0;
    options.on_weights = [&](ModelWeights& weights, int64_t bytes) {
      all = BytesOf(weights).all;
      reported = bytes;
      weights.Watch([&](int64_t more) { read += more; });
    };
    FORETOKEN_ASSERT_OK(MakeBackend(options));
    EXPECT_GT(reported, all);
    EXPECT_EQ(read, reported);
  }
}

TEST(BackendOptionsTest, RandomWeightsReportNothing) {
  BackendOptions options;
  FORETOKEN_ASSERT_OK(Parse({"--backend=cpu"}, options));
  options.on_weights = [](ModelWeights&, int64_t) { FAIL(); };
  FORETOKEN_EXPECT_OK(MakeBackend(options));
}

}  // namespace
}  // namespace foretoken
