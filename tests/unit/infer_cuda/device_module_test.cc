#include "common/infer/cuda/device_module.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/infer/factory/backend_factory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/infer/tiny_backend.h"

namespace foretoken {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kShape[] =
    "d_model=32,layers=2,heads=4,kv_heads=2,d_ff=48,vocab=64";

BackendOptions SmallModel(const std::string& backend) {
  BackendOptions options;
  options.random_model = kShape;
  options.backend = backend;
  options.threads = 1;
  options.kv_cache_bytes = 1 << 20;
  return options;
}

class DeviceModuleTest : public ::testing::Test {
 protected:
  ~DeviceModuleTest() override { unsetenv(kDeviceModuleVariable); }
  void Name(const std::string& path) {
    setenv(kDeviceModuleVariable, path.c_str(), 1);
  }
};

TEST_F(DeviceModuleTest, AFileThatIsMissingOrNoLibraryIsOneLine) {
  Name("/nowhere/libforetoken_cuda.so");
  const absl::Status missing = DeviceModule::Load().status();
  EXPECT_THAT(missing,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("/nowhere/libforetoken_cuda.so"),
                             Not(HasSubstr("\n")))));
  TempDir dir;
  const std::string path = dir.path() + "/text.so";
  std::ofstream(path) << "no library";
  EXPECT_THAT(DeviceModule::LoadFile(path).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("text.so")));
}

TEST_F(DeviceModuleTest, AnotherLibraryOrAnotherVersionIsRefused) {
  EXPECT_THAT(DeviceModule::LoadFile("libz.so.1").status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("no function ForetokenDeviceAbi")));
  EXPECT_THAT(DeviceModule::LoadFile(FORETOKEN_OLD_MODULE).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("built for version 1")));
}

TEST_F(DeviceModuleTest, AModuleThatLoadsRunsTheModel) {
  Name(FORETOKEN_TWIN_MODULE);
  for (const std::string backend : {"cuda", "auto"}) {
    const auto made = MakeBackend(SmallModel(backend));
    FORETOKEN_ASSERT_OK(made);
    EXPECT_THAT((*made)->numerics_fingerprint(), HasSubstr("cuda;twin"));
    PassSession pass;
    pass.session = (*made)->Open("", {})->session;
    const std::vector<TokenId> tokens = {1, 2, 3};
    const std::vector<int32_t> parents = {-1, 0, 1};
    pass.tokens = tokens;
    pass.parents = parents;
    PassResult result;
    FORETOKEN_ASSERT_OK((*made)->Forward({pass}, result));
    EXPECT_EQ(result.outputs[0].size(), 3);
  }
}

TEST_F(DeviceModuleTest, WithoutAModuleAutoIsTheCpuAndCudaAnError) {
  Name("/nowhere/libforetoken_cuda.so");
  const auto fallback = MakeBackend(SmallModel("auto"));
  FORETOKEN_ASSERT_OK(fallback);
  EXPECT_THAT((*fallback)->numerics_fingerprint(), HasSubstr("cpu;"));
  BackendOptions options = SmallModel("cuda");
  EXPECT_THAT(MakeBackend(options).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("libforetoken_cuda.so")));
  // Before any weight is loaded.
  options.random_model = "";
  options.model = "/nowhere";
  EXPECT_THAT(MakeBackend(options).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("libforetoken_cuda.so")));
}

TEST_F(DeviceModuleTest, ThirtyTwoBitsAreForTheCpu) {
  Name(FORETOKEN_TWIN_MODULE);
  BackendOptions options = SmallModel("cuda");
  options.precision = "fp32";
  EXPECT_THAT(MakeBackend(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--precision=fp32"),
                             HasSubstr("--backend=cpu"))));
  options.backend = "auto";
  const auto made = MakeBackend(options);
  FORETOKEN_ASSERT_OK(made);
  EXPECT_THAT((*made)->numerics_fingerprint(), HasSubstr("cpu;"));
}

TEST_F(DeviceModuleTest, AutoIsTheCpuForAShapeWithoutKernelsOnly) {
  Name(FORETOKEN_TWIN_MODULE);
  BackendOptions options = SmallModel("auto");
  options.random_model = absl::StrCat(kShape, ",head_dim=320");
  const auto made = MakeBackend(options);
  FORETOKEN_ASSERT_OK(made);
  EXPECT_THAT((*made)->numerics_fingerprint(), HasSubstr("cpu;"));
  options.backend = "cuda";
  EXPECT_THAT(
      MakeBackend(options).status(),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("head_dim 320")));
  // An option that the GPU cannot take is the operator's to change.
  options = SmallModel("auto");
  options.kv_cache_bytes = 1;
  EXPECT_THAT(MakeBackend(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kv_cache_bytes 1, want at least")));
}

// The module that was built with this tree: wherever there is no GPU it must
// say so and nothing worse.
TEST_F(DeviceModuleTest, TheRealModuleWithoutAGpuSaysSo) {
  const std::string path = FORETOKEN_REAL_MODULE;
  if (path.empty()) GTEST_SKIP() << "no CUDA toolkit: no module was built";
  const auto module = DeviceModule::LoadFile(path);
  FORETOKEN_ASSERT_OK(module);
  EXPECT_THAT(module->Probe(4711), StatusIs(absl::StatusCode::kUnavailable,
                                            HasSubstr("device 4711")));
  DeviceOptions options;
  options.device = 4711;  // on a machine with a GPU: no such one
  DeviceShape shape;
  shape.d_model = 256;
  shape.layers = 1;
  shape.heads = shape.kv_heads = 4;
  shape.head_dim = 64;
  shape.d_ff = 512;
  shape.vocab = 512;
  shape.max_positions = 64;
  shape.rms_norm_eps = 1e-5f;
  EXPECT_THAT(module->Create(shape, options).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("device 4711"), Not(HasSubstr("\n")))));
}

}  // namespace
}  // namespace foretoken
