#include "common/infer/factory/backend_factory.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/gguf/tensor_types.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/kv_type.h"
#include "common/infer/cuda/cuda_backend.h"
#include "common/infer/cuda/device_module.h"
#include "common/infer/factory/named_shapes.h"
#include "common/infer/model_weights.h"
#include "common/infer/weight_conversion.h"

namespace foretoken {
namespace {

// Returns the field for a key of --random-model, or nullptr if there is none.
int32_t* FieldOf(ModelConfig& config, absl::string_view key) {
  if (key == "d_model") return &config.d_model;
  if (key == "layers") return &config.n_layers;
  if (key == "heads") return &config.n_heads;
  if (key == "kv_heads") return &config.n_kv_heads;
  if (key == "head_dim") return &config.head_dim;
  if (key == "d_ff") return &config.d_ff;
  if (key == "vocab") return &config.vocab_size;
  if (key == "max_positions") return &config.max_positions;
  return nullptr;
}

absl::StatusOr<std::unique_ptr<ModelWeights>> LoadWeights(
    const BackendOptions& options) {
  if (!options.model.empty()) return ModelWeights::Load(options.model);
  FORETOKEN_ASSIGN_OR_RETURN(const ModelConfig config,
                             ParseRandomModel(options.random_model));
  WeightType type = options.precision == "fp32" ? WeightType::kFloat32
                                                : WeightType::kBFloat16;
  if (!options.random_weights.empty()) {
    // The names are those of GGUF (in lower case), so that every stored type
    // that the engine reads can be measured without a file of it.
    const GgufTensorType* named =
        FindGgufTensorType(absl::AsciiStrToUpper(options.random_weights));
    const auto known =
        named != nullptr ? WeightTypeFromGguf(named->number) : std::nullopt;
    if (!known.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "random weights: \"", options.random_weights,
          "\", want f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k "
          "or q6_k"));
    }
    type = *known;
  }
  return ModelWeights::Random(config, type,
                              static_cast<uint64_t>(options.random_seed));
}

// The first option that only the CPU engine takes, as a flag; empty if there is
// none.
std::string CpuOnlyOption(const BackendOptions& options) {
  // Each of these is a wish that a GPU would silently ignore. An operator who
  // set one gets an error (cuda) or the CPU (auto).
  if (options.precision == "fp32") return "--precision=fp32";
  if (options.isa != "auto") return absl::StrCat("--isa=", options.isa);
  if (options.kv_type != "auto") {
    return absl::StrCat("--kv-type=", options.kv_type);
  }
  if (options.conversion != "auto" && options.conversion != "keep") {
    return absl::StrCat("--draft-weights=", options.conversion);
  }
  return "";
}

// Returns the GPU module if there is a GPU for these options, else the reason.
absl::StatusOr<DeviceModule> FindGpu(const BackendOptions& options) {
  if (const std::string flag = CpuOnlyOption(options); !flag.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is for --backend=cpu only"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const DeviceModule module, DeviceModule::Load());
  // Load finds a library, which is no proof of a device: the probe makes a
  // small engine on it.
  FORETOKEN_RETURN_IF_ERROR(module.Probe(options.device));
  return module;
}

void ReportWeights(const BackendOptions& options, ModelWeights& weights,
                   int64_t reported) {
  // Nothing reads the bytes of random weights for their digest.
  if (options.model.empty() || options.on_weights == nullptr) return;
  options.on_weights(weights, reported);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeOnGpu(
    const BackendOptions& options, const DeviceModule& module,
    ModelWeights& weights) {
  // The upload reads the weights once, and the digest beside it is not counted.
  ReportWeights(options, weights, BytesOf(weights).all);
  CudaOptions cuda{options};
  cuda.device = options.device;
  return MakeCudaBackend(
      weights,
      [&](const DeviceShape& shape, const DeviceOptions& device) {
        // By reference: MakeCudaBackend calls this before it returns and does
        // not keep it.
        return module.Create(shape, device);
      },
      cuda);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeOnCpu(
    const BackendOptions& options, std::unique_ptr<ModelWeights> weights) {
  CpuOptions cpu{options};
  cpu.precision =
      options.precision == "fp32" ? Precision::kFloat32 : Precision::kBFloat16;
  FORETOKEN_ASSIGN_OR_RETURN(cpu.isa, ParseCpuIsa(options.isa));
  FORETOKEN_ASSIGN_OR_RETURN(cpu.kv_type, ParseKvType(options.kv_type));
  FORETOKEN_ASSIGN_OR_RETURN(cpu.conversion,
                             ParseWeightConversion(options.conversion));
  cpu.head_size = options.head_size;
  cpu.head_first = options.head_first;
  cpu.threads = options.threads;
  const WeightBytes bytes = BytesOf(*weights);
  // Twice: the digest reads every byte, and the matrices are read again to be
  // packed.
  ReportWeights(options, *weights, bytes.all + bytes.matrices);
  return MakeCpuBackend(std::move(weights), cpu);
}

// Errors for which "auto" falls back to the CPU: no GPU, or no kernels for this
// shape. Not a bad option or too little GPU memory; those are for the operator
// to fix.
bool MeansNoGpu(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsUnimplemented(status);
}

}  // namespace

void BackendOptions::AddFlags(Flags& flags) {
  flags.String("model", &model,
               "Model: a Hugging Face directory or a GGUF file");
  flags.String("random-model", &random_model,
               "Random weights instead of --model, for measurements: a named "
               "shape such as llama-3-8b, or d_model=2048,layers=12,heads=32,"
               "kv_heads=4,d_ff=5632,vocab=32000");
  flags.Int64("random-seed", &random_seed, {0, int64_t{1} << 62},
              "Seed of the random weights");
  flags.Choice("backend", &backend, {"auto", "cpu", "cuda"},
               "Engine; auto uses a GPU where there is one");
  flags.Int("device", &device, {0, 1023}, "GPU index");
  flags.Choice("precision", &precision, {"bf16", "fp32"},
               "Precision of weights and KV cache; fp32 on the CPU only");
  flags.Choice("kv-type", &kv_type, KvTypeChoices(),
               "Type of the KV cache of the CPU engine; auto: that of the "
               "precision, q8_0: 8 bits, which changes the results slightly");
  flags.Choice("isa", &isa, CpuIsaChoices(),
               "Instruction set of the CPU engine, auto for the fastest. With "
               "bf16 matrices avx512bf16 computes other bits than the rest: "
               "avoid it where sessions move between different processors");
  flags.Int("threads", &threads, {0, 1024},
            "Threads of a pass, 0 for all processors");
  flags.Int64("kv-cache-bytes", &kv_cache_bytes, {0, int64_t{1} << 44},
              "KV cache, 0 for the engine's choice: on a GPU at most half of "
              "the memory that the weights leave");
  flags.Int("max-rows-per-pass", &max_rows, {2, kMaxRows},
            "Maximum rows of a pass, all sessions together");
  flags.Int("max-admitted-sessions", &max_sessions, {1, 1 << 16},
            "Maximum number of sessions that hold KV");
  flags.Bool("prefix-reuse", &prefix_reuse,
             "Keep the KV of ended sessions for later sessions of their scope");
  flags.Require("model", [this]() -> std::string {
    if (model.empty() == random_model.empty()) {
      return "want either --model or --random-model";
    }
    return "";
  });
}

absl::StatusOr<ModelConfig> ParseRandomModel(absl::string_view text) {
  ModelConfig config;
  config.max_positions = 4096;
  std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (const auto named = NamedShape(parts.front()); named.has_value()) {
    config = *named;
    parts.erase(parts.begin());
  }
  for (const absl::string_view part : parts) {
    // At most one split: the value keeps a second "=" and is refused as a
    // number.
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    int32_t* field = FieldOf(config, pair.first);
    if (field == nullptr || !absl::SimpleAtoi(pair.second, field)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "random model: \"", part,
          "\", want d_model|layers|heads|kv_heads|head_dim|d_ff|vocab|"
          "max_positions=NUMBER, after ",
          NamedShapeList(), " or alone"));
    }
  }
  // As in config.json files that leave it out: the heads divide d_model.
  if (config.head_dim == 0 && config.n_heads > 0) {
    config.head_dim = config.d_model / config.n_heads;
  }
  FORETOKEN_RETURN_IF_ERROR(Annotate(config.Validate(), "random model"));
  return config;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(
    const BackendOptions& options) {
  // Check before loading the weights, which takes long.
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<CpuIsa> isa,
                             ParseCpuIsa(options.isa));
  // An instruction set that this CPU lacks is refused here instead of failing
  // with SIGILL in the first pass.
  FORETOKEN_RETURN_IF_ERROR(SelectCpuOps(isa).status());
  FORETOKEN_RETURN_IF_ERROR(ParseKvType(options.kv_type).status());
  FORETOKEN_RETURN_IF_ERROR(ParseWeightConversion(options.conversion).status());
  if (options.backend == "cpu" ||
      (options.backend == "auto" && !CpuOnlyOption(options).empty())) {
    if (options.backend == "auto") {
      FORETOKEN_LOG(kInfo, CpuOnlyOption(options), " selects the CPU");
    }
    FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<ModelWeights> weights,
                               LoadWeights(options));
    return MakeOnCpu(options, std::move(weights));
  }
  // Before loading the weights, too.
  const absl::StatusOr<DeviceModule> module = FindGpu(options);
  absl::Status why = module.status();
  // A GPU that is there but fails for another reason is reported even under
  // auto: a quiet fallback would serve, at a fraction of the speed, without
  // anyone knowing why.
  if (!why.ok() && (options.backend == "cuda" || !MeansNoGpu(why))) return why;
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<ModelWeights> weights,
                             LoadWeights(options));
  if (module.ok()) {
    auto on_gpu = MakeOnGpu(options, *module, *weights);
    why = on_gpu.status();
    // The weights were only read, so they can go to the CPU.
    if (why.ok() || options.backend == "cuda" || !MeansNoGpu(why)) {
      return on_gpu;
    }
  }
  FORETOKEN_LOG(kInfo, "falling back to the CPU: ", why.message());
  return MakeOnCpu(options, std::move(weights));
}

}  // namespace foretoken
