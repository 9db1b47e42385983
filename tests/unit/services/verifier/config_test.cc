#include "services/verifier/config.h"

#include <memory>
#include <string>

#include "common/config/flags.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/metrics/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

// Random weights are bf16, which avx512bf16 multiplies in its own order.
TEST(VerifierServiceTest, OrchestratorsAreToldTheIsaOfTheFlag) {
  for (const CpuIsa isa : SupportedCpuIsas()) {
    const std::string name = kCpuIsaNames[static_cast<int>(isa)];
    const std::string flag = "--isa=" + name;
    VerifierService service;
    Flags flags("foretoken-verifier", "Runs the target model.");
    service.AddFlags(flags);
    const char* const argv[] = {
        "foretoken-verifier",
        "--random-model=d_model=32,layers=1,heads=2,kv_heads=1,d_ff=32,"
        "vocab=64",
        "--threads=1", flag.c_str()};
    FORETOKEN_ASSERT_OK(flags.Parse(4, argv));
    metrics::Registry registry;
    const auto server = service.Make(registry);
    FORETOKEN_ASSERT_OK(server);
    const auto info = (*server)->Info();
    FORETOKEN_ASSERT_OK(info);
    const std::string want =
        isa == CpuIsa::kAvx512Bf16 ? "avx512bf16" : "common";
    EXPECT_THAT(info->numerics_fingerprint, HasSubstr(";isa=" + want + ";"));
  }
}

}  // namespace
}  // namespace foretoken::verifier
