// foretoken inspect: what a model directory or GGUF file holds, and what of it
// is not supported.
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_files.h"
#include "common/gguf/tensor_types.h"
#include "common/infer/checkpoint_files.h"
#include "common/infer/model_path.h"
#include "common/infer/model_weights.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"

namespace foretoken::cli {
namespace {

void Line(const char* name, const std::string& value) {
  std::printf("%-14s %s\n", name, value.c_str());
}

std::string Megabytes(uint64_t bytes) {
  return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
}

struct TypeTotal {
  int tensors = 0;
  int64_t elements = 0;
  uint64_t bytes = 0;
  void Add(const std::vector<int64_t>& shape, uint64_t more) {
    int64_t product = 1;
    for (const int64_t dim : shape) product *= dim;
    ++tensors;
    elements += product;
    bytes += more;
  }
};
using TypeTotals = std::map<std::string, TypeTotal>;

// Prints the format; `type_of` names the type of a stored tensor.
template <typename Files, typename TypeOf>
TypeTotals InspectFiles(const char* format, const Files& files,
                        const TypeOf& type_of) {
  Line("format", absl::StrCat(format, ", ", files.maps.size(),
                              files.maps.size() == 1 ? " file" : " files"));
  TypeTotals totals;
  for (const auto& [name, stored] : files.tensors) {
    totals[type_of(stored.tensor)].Add(stored.tensor.shape,
                                       stored.tensor.data.size());
  }
  return totals;
}

// Prints what is known without understanding the model.
absl::StatusOr<TypeTotals> InspectGguf(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const GgufFiles files, GgufFiles::Open(path));
  TypeTotals totals = InspectFiles("GGUF", files, [](const auto& tensor) {
    return GgufTensorTypeName(tensor.type);
  });
  // The two keys without which nothing can be said about a model; both may be
  // missing.
  for (const char* key : {"general.name", "general.architecture"}) {
    const GgufValue* value = files.metadata.Find(key);
    Line(key + std::string("general.").size(),
         value == nullptr ? "none" : value->Text());
  }
  return totals;
}

absl::StatusOr<TypeTotals> InspectDirectory(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json config,
                             ReadModelJson(path + "/config.json"));
  FORETOKEN_ASSIGN_OR_RETURN(const CheckpointFiles files,
                             CheckpointFiles::Open(path));
  TypeTotals totals = InspectFiles(
      "Hugging Face", files, [](const auto& tensor) { return tensor.dtype; });
  Line("architecture", DumpJson(config.value("model_type", Json())));
  return totals;
}

void PrintTypes(const TypeTotals& totals) {
  TypeTotal all;
  for (const auto& [name, total] : totals) {
    Line("tensors",
         absl::StrFormat("%4d %-7s %13d elements %10s", total.tensors, name,
                         total.elements, Megabytes(total.bytes)));
    all.tensors += total.tensors;
    all.elements += total.elements;
    all.bytes += total.bytes;
  }
  Line("in all",
       absl::StrFormat(
           "%4d %-7s %13d elements %10s, %.2f bits each", all.tensors, "",
           all.elements, Megabytes(all.bytes),
           8.0 * static_cast<double>(all.bytes) /
               static_cast<double>(std::max<int64_t>(1, all.elements))));
}

absl::Status PrintModel(const std::string& path) {
  const auto weights = ModelWeights::Load(path);
  if (!weights.ok()) {
    Line("model", absl::StrCat("NOT SUPPORTED: ", weights.status().message()));
    return CheckModel(path);
  }
  const ModelConfig& config = (*weights)->config();
  Line("model",
       absl::StrFormat(
           "supported: %s, %d layers, d_model %d, %d heads of %d, %d KV heads, "
           "d_ff %d, vocabulary %d%s",
           ModelFamilyName(config.family), config.n_layers, config.d_model,
           config.n_heads, config.head_dim, config.n_kv_heads, config.d_ff,
           config.vocab_size,
           config.tied_embeddings ? ", embeddings tied" : ""));
  Line("context", absl::StrCat(config.max_positions));
  Line("end tokens", absl::StrJoin(config.eos_tokens, " "));
  return absl::OkStatus();
}

absl::Status PrintTokenizer(const std::string& path) {
  const auto tokenizer = Tokenizer::Load(path);
  // A model without a tokenizer is usable with token ids.
  if (absl::IsNotFound(tokenizer.status())) {
    Line("tokenizer", "none");
    return absl::OkStatus();
  }
  if (!tokenizer.ok()) {
    Line("tokenizer",
         absl::StrCat("NOT SUPPORTED: ", tokenizer.status().message()));
    return tokenizer.status();
  }
  const auto token = [&](TokenId id) {
    if (id < 0) return std::string("none");
    // Escaped: a token may hold control characters that would change the
    // terminal.
    return absl::StrCat(id, " ",
                        absl::CEscape((*tokenizer)->vocabulary().content(id)));
  };
  Line("tokenizer",
       absl::StrCat("supported: ", (*tokenizer)->vocab_size(), " tokens, BOS ",
                    token((*tokenizer)->bos_token()), ", EOS ",
                    token((*tokenizer)->eos_token())));
  Line("fingerprint", HexDigest((*tokenizer)->fingerprint()));
  const std::string& chat = (*tokenizer)->chat_template();
  constexpr size_t kShown = 100;
  Line("chat template",
       chat.empty()
           ? "none"
           : absl::StrCat(chat.size(),
                          " bytes: ", absl::CEscape(chat.substr(0, kShown)),
                          chat.size() > kShown ? "..." : ""));
  return absl::OkStatus();
}

absl::Status Inspect(const std::string& path) {
  FORETOKEN_RETURN_IF_ERROR(CheckModelPath(path));
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(path, ignored);
  FORETOKEN_ASSIGN_OR_RETURN(
      const TypeTotals totals,
      is_file ? InspectGguf(path) : InspectDirectory(path));
  PrintTypes(totals);
  absl::Status problem = PrintModel(path);
  // Update keeps the first error, and both parts are printed in any case.
  problem.Update(PrintTokenizer(path));
  return problem;
}

}  // namespace

void AddInspectCommand(Command root) {
  const auto [command, path] = root.AddCommand<std::string>(
      "inspect", "Print what a model holds and what of it is supported",
      Inspect);
  command.Add("model", path, "A Hugging Face directory or a GGUF file")
      .Required();
}

}  // namespace foretoken::cli
