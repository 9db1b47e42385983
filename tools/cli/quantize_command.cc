// foretoken quantize: writes a model as a quantised GGUF file.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/gguf/gguf_files.h"
#include "common/infer/gguf_export.h"
#include "common/infer/model_weights.h"
#include "common/text/gguf_tokenizer_export.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {
namespace {

struct QuantizeOptions {
  std::string model;
  std::string type;
  std::string out;
  int32_t threads = 0;
};

// Copies the tokenizer.* and general.* keys, except those that the export
// writes.
absl::Status CopyKeys(const std::string& path, GgufWriter& writer) {
  FORETOKEN_ASSIGN_OR_RETURN(const GgufFiles files, GgufFiles::Open(path));
  for (const auto& [key, value] : files.metadata.values()) {
    // The other keys describe the architecture, which the export writes from
    // the model as it was read.
    const bool kept = absl::StartsWith(key, "tokenizer.") ||
                      absl::StartsWith(key, "general.");
    const bool written =
        key == "general.architecture" || key == "general.file_type" ||
        key == "general.quantization_version" || key == "general.alignment";
    if (kept && !written) writer.Copy(key, value);
  }
  return absl::OkStatus();
}

absl::Status AddKeysOfDirectory(const std::string& path, int32_t vocab_size,
                                GgufWriter& writer) {
  const std::filesystem::path directory =
      std::filesystem::path(path) / ".";  // drops a trailing slash
  writer.String("general.name", directory.parent_path().filename().string());
  const absl::Status added = AddGgufTokenizerKeys(path, vocab_size, writer);
  // No tokenizer is a warning: such a file still runs with token ids.
  if (!absl::IsNotFound(added)) return added;
  FORETOKEN_LOG(kWarning,
                "no tokenizer in the file: ", std::string(added.message()));
  return absl::OkStatus();
}

absl::Status Quantize(const QuantizeOptions& options) {
  const std::optional<GgufFileKind> kind = ParseGgufFileKind(options.type);
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelWeights> weights,
                             ModelWeights::Load(options.model));
  GgufWriter writer;
  FORETOKEN_RETURN_IF_ERROR(
      IsGgufFile(options.model)
          ? CopyKeys(options.model, writer)
          : AddKeysOfDirectory(options.model, weights->config().vocab_size,
                               writer));
  const int threads = options.threads > 0 ? options.threads : AllProcessors();
  ThreadPool pool(std::min(threads, ThreadPool::kMaxThreads));
  using Pair = std::pair<std::string, std::string>;
  // By pair of types, so that a hundred tensors give one line.
  std::map<Pair, std::pair<int, std::string>> fallbacks;
  FORETOKEN_RETURN_IF_ERROR(ExportGguf(
      *weights, *kind, options.out, pool, std::move(writer),
      [&](const GgufExportedTensor& tensor) {
        if (tensor.type == tensor.wanted) return;
        auto& [count, first] = fallbacks[{WeightTypeName(tensor.wanted),
                                          WeightTypeName(tensor.type)}];
        // The first one found stands for all of them.
        if (count++ == 0) first = tensor.name;
      }));
  for (const auto& [types, found] : fallbacks) {
    std::fprintf(stderr,
                 "%d tensors are %s instead of %s, whose blocks their rows do "
                 "not fill (first: %s)\n",
                 found.first, types.second.c_str(), types.first.c_str(),
                 found.second.c_str());
  }
  std::error_code error;
  const auto size = std::filesystem::file_size(options.out, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat(options.out, ": ", error.message()));
  }
  std::fprintf(stderr, "wrote %s: %.1f MB\n", options.out.c_str(),
               static_cast<double>(size) / 1e6);
  return absl::OkStatus();
}

}  // namespace

void AddQuantizeCommand(Command root) {
  const auto [command, options] = root.AddCommand<QuantizeOptions>(
      "quantize", "Write a model as a quantised GGUF file", Quantize);
  command
      .Add("--model", options.model, "A Hugging Face directory or a GGUF file")
      .Required();
  command
      .Add("--type", options.type,
           "Type of the matrices; q4_0 and q4_k_m keep more bits for "
           "some of them, as llama.cpp does")
      .Required()
      .OneOf({"q8_0", "q4_0", "q4_k_m", "bf16", "f16", "f32"});
  command.Add("--out", options.out, "GGUF file to write").Required();
  command.Add("--threads", options.threads, "0: all processors")
      .InRange(0, ThreadPool::kMaxThreads);
}

}  // namespace foretoken::cli
