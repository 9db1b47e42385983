// Peak memory of a model that is loaded from a file and runs a pass.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/gguf/gguf_writer.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/gguf_model.h"
#include "common/infer/model_weights.h"
#include "common/infer/random_weights.h"
#include "common/infer/tensor_layout.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/infer/tiny_backend.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Chain;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::TempDir;

// About 60 million weights; 17 million in each of two tables of the vocabulary,
// 25 million in a tied one.
ModelConfig Config(bool tied) {
  ModelConfig config;
  config.d_model = 1024;
  config.n_layers = 3;
  config.n_heads = 16;
  config.n_kv_heads = 4;
  config.head_dim = 64;
  config.d_ff = 2560;
  config.vocab_size = tied ? 24576 : 16384;
  config.max_positions = 256;
  config.tied_embeddings = tied;
  return config;
}

// Of Q4_K_M: six bits for the output and half of the down projections.
enum class Kind { kPlain, kMixed };

// Random weights of `type` as a GGUF file, a tensor at a time.
std::string WriteModel(const TempDir& dir, const ModelConfig& config,
                       WeightType type, Kind kind) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  const auto number = [&](const char* key, int32_t value) {
    writer.Uint32(absl::StrCat("llama.", key), static_cast<uint32_t>(value));
  };
  number("block_count", config.n_layers);
  number("context_length", config.max_positions);
  number("embedding_length", config.d_model);
  number("feed_forward_length", config.d_ff);
  number("attention.head_count", config.n_heads);
  number("attention.head_count_kv", config.n_kv_heads);
  writer.Float32("llama.attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  ModelTensors tensors;
  const std::vector<TensorSlot> slots = LayOutTensors(config, tensors);
  const auto type_of = [&](const TensorSlot& slot) {
    if (slot.is_vector()) return WeightType::kFloat32;
    const bool output =
        slot.name == kOutputTensorName ||
        (config.tied_embeddings && slot.role == TensorRole::kEmbedding);
    const bool six_bits =
        output || slot.name == "model.layers.0.mlp.down_proj.weight";
    return kind == Kind::kMixed && six_bits ? WeightType::kQ6_K : type;
  };
  for (const TensorSlot& slot : slots) {
    writer.Tensor(GgufTensorName(slot.name),
                  static_cast<uint32_t>(type_of(slot)), slot.shape());
  }
  const std::string path = dir.File("model.gguf");
  std::ofstream file(path, std::ios::binary);
  file << writer.Header();
  for (const TensorSlot& slot : slots) {
    std::vector<uint8_t> data(static_cast<size_t>(
        WeightTypeBytes(type_of(slot), slot.rows * slot.cols)));
    FillRandomTensor(slot, config, type_of(slot), 7, data.data());
    file.write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size()));
    file << GgufWriter::Padding(data.size());
  }
  file.close();
  EXPECT_TRUE(file.good());
  return path;
}

// A line of /proc/self/status, in bytes.
int64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long long kilobytes = 0;
    if (std::sscanf(line.c_str(), (name + ": %lld kB").c_str(), &kilobytes) ==
        1) {
      return kilobytes * 1024;
    }
  }
  return -1;
}

// Sets VmHWM, the peak, to what is resident now.
bool ResetPeak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5";
  refs.close();
  return refs.good();
}

struct Case {
  const char* name;
  WeightType type;
  Kind kind;
  bool tied;
  WeightConversion conversion = WeightConversion::kKeep;
};

class ModelMemoryTest : public ::testing::TestWithParam<Case> {};

TEST_P(ModelMemoryTest, PeakIsTheFileAndAQuarterAndTheKvCache) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
  const ModelConfig config = Config(GetParam().tied);
  TempDir dir;
  const std::string path =
      WriteModel(dir, config, GetParam().type, GetParam().kind);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const int64_t file_bytes = file.tellg();

  if (!ResetPeak()) GTEST_SKIP() << "/proc/self/clear_refs is not writable";
  const int64_t before = StatusBytes("VmRSS");
  auto weights = ModelWeights::Load(path);
  FORETOKEN_ASSERT_OK(weights);
  CpuOptions options;
  options.threads = 2;
  options.max_rows = 64;
  options.kv_cache_bytes = int64_t{1} << 20;
  options.conversion = GetParam().conversion;
  const auto backend = MakeCpuBackend(*std::move(weights), options);
  FORETOKEN_ASSERT_OK(backend);
  PassSession pass;
  pass.session = (*backend)->Open("", {})->session;
  const std::vector<TokenId> tokens(8, 5);
  const std::vector<int32_t> parents = Chain(8);
  pass.tokens = tokens;
  pass.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK((*backend)->Forward({pass}, result));

  const int64_t peak = StatusBytes("VmHWM") - before;
  const int64_t now = StatusBytes("VmRSS") - before;
  const auto share = [&](int64_t bytes) {
    return absl::StrFormat(
        "%.2f", static_cast<double>(bytes) / static_cast<double>(file_bytes));
  };
  RecordProperty("peak_over_file", share(peak));
  RecordProperty("afterwards_over_file", share(now));
  EXPECT_LE(peak, file_bytes / 4 * 5 + options.kv_cache_bytes)
      << "peak " << share(peak) << " of the file, " << share(now)
      << " afterwards";
  // The file's matrices, or a cast of them, are there: a peak below is none.
  const bool narrowed = GetParam().type == WeightType::kFloat32 ||
                        GetParam().conversion != WeightConversion::kKeep;
  EXPECT_GE(peak, file_bytes / (narrowed ? 4 : 2));
}

INSTANTIATE_TEST_SUITE_P(
    EveryType, ModelMemoryTest,
    ::testing::Values(
        Case{"F32", WeightType::kFloat32, Kind::kPlain, false},
        Case{"F16", WeightType::kFloat16, Kind::kPlain, false},
        Case{"BF16", WeightType::kBFloat16, Kind::kPlain, false},
        Case{"BF16_tied", WeightType::kBFloat16, Kind::kPlain, true},
        Case{"Q8_0", WeightType::kQ8_0, Kind::kPlain, false},
        Case{"Q8_0_tied", WeightType::kQ8_0, Kind::kPlain, true},
        Case{"Q4_0", WeightType::kQ4_0, Kind::kPlain, false},
        Case{"Q4_0_tied", WeightType::kQ4_0, Kind::kPlain, true},
        Case{"Q4_K_M", WeightType::kQ4_K, Kind::kMixed, false},
        Case{"Q4_K_M_tied", WeightType::kQ4_K, Kind::kMixed, true},
        Case{"BF16_auto", WeightType::kBFloat16, Kind::kPlain, false,
             WeightConversion::kAuto},
        Case{"BF16_tied_auto", WeightType::kBFloat16, Kind::kPlain, true,
             WeightConversion::kAuto},
        Case{"Q8_0_tied_as_Q4_0", WeightType::kQ8_0, Kind::kPlain, true,
             WeightConversion::kQ4_0}),
    [](const ::testing::TestParamInfo<Case>& test) {
      return std::string(test.param.name);
    });

// A quantised embedding is the one tensor that passes read row by row.
TEST(ModelFileTest, TruncatedWhileItIsServedChangesNoPass) {
  for (const bool tied : {false, true}) {
    ModelConfig config = Config(tied);
    config.d_model = 256;
    config.n_layers = 1;
    config.n_heads = config.n_kv_heads = 4;
    config.d_ff = 256;
    config.vocab_size = 1024;
    TempDir dir;
    const std::string path =
        WriteModel(dir, config, WeightType::kQ8_0, Kind::kPlain);
    auto weights = ModelWeights::Load(path);
    FORETOKEN_ASSERT_OK(weights);
    CpuOptions options;
    options.max_rows = 64;
    options.kv_cache_bytes = int64_t{1} << 20;
    const auto backend = MakeCpuBackend(*std::move(weights), options);
    FORETOKEN_ASSERT_OK(backend);
    const std::vector<TokenId> tokens = {5, 700, 1023, 64};
    const std::vector<int32_t> parents = Chain(4);
    const auto run = [&] {
      PassSession pass;
      pass.session = (*backend)->Open("", {})->session;
      pass.tokens = tokens;
      pass.parents = parents;
      PassResult result;
      EXPECT_THAT((*backend)->Forward({pass}, result), IsOk());
      EXPECT_THAT((*backend)->Close(pass.session), IsOk());
      std::vector<TokenId> drawn;
      for (const auto& row : result.outputs.at(0)) drawn.push_back(row.token);
      return drawn;
    };
    const std::vector<TokenId> before = run();
    std::filesystem::resize_file(path, 0);
    EXPECT_EQ(run(), before) << "tied: " << tied;
  }
}

}  // namespace
}  // namespace foretoken
