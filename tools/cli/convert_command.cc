// foretoken convert: converts checkpoints of other programs to Hugging Face
// directories.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/infer/llama2c.h"
#include "common/text/llama2c_tokenizer.h"
#include "common/text/sentencepiece_model.h"
#include "tools/cli/command.h"

namespace foretoken::cli {
namespace {

struct ConvertOptions {
  std::string checkpoint;
  std::string tokenizer;
  std::string out;
};

// Tokenizers of the largest vocabularies take a tenth.
constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;

struct TokenizerFiles {
  std::string model;   // tokenizer.model
  std::string config;  // tokenizer_config.json
};

// Ids 0, 1 and 2 are <unk>, <s> and </s> in every tokenizer of llama2.c.
constexpr size_t kNamedPieces = 3;

// At least kNamedPieces pieces.
std::string TokenizerConfigJson(const SentencePieceModel& model) {
  const auto piece = [&model](size_t id) { return model.pieces[id].text; };
  return Json{{"tokenizer_class", "LlamaTokenizer"},
              {"add_bos_token", true},
              {"add_eos_token", false},
              {"unk_token", piece(0)},
              {"bos_token", piece(1)},
              {"eos_token", piece(2)}}
             .dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

// Rewrites a llama2.c .bin as a SentencePiece model; copies a .model after
// checking that it fits the checkpoint.
absl::StatusOr<TokenizerFiles> ConvertTokenizer(const std::string& path,
                                                int32_t vocab_size) {
  const bool is_model = absl::EndsWith(path, ".model");
  if (!is_model && !absl::EndsWith(path, ".bin")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokenizer: ", path, ", want a .bin or .model file"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::string bytes,
                             ReadFile(path, kMaxTokenizerBytes));
  absl::StatusOr<SentencePieceModel> model =
      is_model ? ParseSentencePieceModel(bytes)
               : ParseLlama2cTokenizer(bytes, vocab_size);
  if (!model.ok()) return Annotate(model.status(), path);
  // The matrices have one row for each token, so another count means another
  // tokenizer.
  if (model->pieces.size() != static_cast<size_t>(vocab_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", model->pieces.size(),
                     " tokens, want the checkpoint's ", vocab_size));
  }
  if (model->pieces.size() < kNamedPieces) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", model->pieces.size(),
                     " tokens, want <unk>, <s> and </s> at least"));
  }
  TokenizerFiles files;
  files.config = TokenizerConfigJson(*model);
  // A .model is copied unchanged, with all that its parsed form may not keep.
  files.model =
      is_model ? std::move(bytes) : SerializeSentencePieceModel(*model);
  return files;
}

// Writes nothing unless both files are valid.
absl::Status ConvertLlama2cModel(const ConvertOptions& options) {
  // All input is read and checked first; a failed conversion leaves no
  // directory that looks like a model.
  FORETOKEN_ASSIGN_OR_RETURN(const Llama2cFiles model,
                             ConvertLlama2cFile(options.checkpoint));
  FORETOKEN_ASSIGN_OR_RETURN(
      const TokenizerFiles tokenizer,
      ConvertTokenizer(options.tokenizer, model.config.vocab_size));
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--out: ", options.out, ": cannot create: ", error.message()));
  }
  // config.json comes last (WriteLlama2cFiles): a directory with one is
  // complete.
  FORETOKEN_RETURN_IF_ERROR(
      WriteFileAtomically(options.out + "/tokenizer.model", tokenizer.model));
  FORETOKEN_RETURN_IF_ERROR(WriteFileAtomically(
      options.out + "/tokenizer_config.json", tokenizer.config));
  FORETOKEN_RETURN_IF_ERROR(WriteLlama2cFiles(model, options.out));
  std::fprintf(stderr, "wrote %s: %d layers, d_model %d, vocabulary %d\n",
               options.out.c_str(), model.config.n_layers, model.config.d_model,
               model.config.vocab_size);
  return absl::OkStatus();
}

}  // namespace

void AddConvertCommand(Command root) {
  const Command convert = root.AddGroup(
      "convert", "Convert a checkpoint to a Hugging Face directory");
  const auto [llama2c, options] = convert.AddCommand<ConvertOptions>(
      "llama2c", "A llama2.c checkpoint (legacy format) and its tokenizer",
      ConvertLlama2cModel);
  llama2c
      .Add("--checkpoint", options.checkpoint,
           "The llama2.c checkpoint, a .bin file")
      .Required();
  llama2c
      .Add("--tokenizer", options.tokenizer,
           "Its tokenizer: a llama2.c .bin or a SentencePiece .model")
      .Required();
  llama2c.Add("--out", options.out, "Directory to write; created if missing")
      .Required();
}

}  // namespace foretoken::cli
