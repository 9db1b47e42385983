#include "common/text/gguf_tokenizer_export.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf.h"
#include "common/text/added_tokens.h"
#include "common/text/gguf_tokenizer.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/tokenizer.h"

namespace foretoken {
namespace {

// Values of tokenizer.ggml.token_type; those of SentencePiece are the same.
constexpr int32_t kNormal = 1;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kUnused = 5;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Tokens by id. Ids without a token, the padding of the embedding, get the
// placeholder that llama.cpp's converter writes.
struct TokenList {
  explicit TokenList(int32_t size) : texts(size), types(size, kUnused) {
    for (int32_t id = 0; id < size; ++id) {
      texts[id] = absl::StrCat("[PAD", id, "]");
    }
  }
  void Set(int64_t id, const std::string& text, int32_t type) {
    if (id < 0 || id >= static_cast<int64_t>(texts.size())) return;
    texts[id] = text;
    types[id] = type;
  }
  void AddTo(GgufWriter& writer) const {
    writer.Strings("tokenizer.ggml.tokens", texts);
    writer.Int32s("tokenizer.ggml.token_type", types);
  }
  std::vector<std::string> texts;
  std::vector<int32_t> types;
};

absl::Status AddByteLevel(const Json& json, int32_t vocab_size,
                          GgufWriter& writer) {
  const std::string pre = GgufPreTokenizerOf(json);
  if (pre.empty()) {
    return absl::UnimplementedError(
        "normalizer and pre_tokenizer are those of no tokenizer.ggml.pre");
  }
  writer.String("tokenizer.ggml.model", "gpt2");
  writer.String("tokenizer.ggml.pre", pre);
  TokenList tokens(vocab_size);
  const Json& model = json.at("model");
  for (const auto& [text, id] : model.at("vocab").items()) {
    tokens.Set(id.get<int64_t>(), text, kNormal);
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::vector<AddedToken> added,
      ParseAddedTokens(json.value("added_tokens", Json())));
  for (const AddedToken& token : added) {
    // GGUF has no field for these: the file would tokenise other texts
    // differently.
    if (token.lstrip || token.rstrip || token.single_word) {
      return absl::UnimplementedError(
          absl::StrCat("added token \"", token.content,
                       "\" has lstrip, rstrip or single_word"));
    }
    tokens.Set(token.id, token.content,
               token.special ? kControl : kUserDefined);
  }
  tokens.AddTo(writer);
  std::vector<std::string> merges;
  for (const Json& merge : model.at("merges")) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : absl::StrCat(merge.at(0).get<std::string>(), " ",
                                        merge.at(1).get<std::string>()));
  }
  writer.Strings("tokenizer.ggml.merges", merges);
  return absl::OkStatus();
}

absl::Status AddSentencePiece(const std::string& path, int32_t vocab_size,
                              GgufWriter& writer) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  FORETOKEN_ASSIGN_OR_RETURN(const SentencePieceModel model,
                             ParseSentencePieceModel(bytes));
  writer.String("tokenizer.ggml.model", "llama");
  // llama.cpp's converter writes this for every SentencePiece model.
  writer.String("tokenizer.ggml.pre", "default");
  TokenList tokens(vocab_size);
  std::vector<float> scores(static_cast<size_t>(vocab_size));
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    tokens.Set(static_cast<int64_t>(id), piece.text,
               static_cast<int32_t>(piece.type));
    if (id < scores.size()) scores[id] = piece.score;
  }
  tokens.AddTo(writer);
  writer.Float32s("tokenizer.ggml.scores", scores);
  writer.Bool("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix);
  writer.Bool("tokenizer.ggml.remove_extra_whitespaces",
              model.remove_extra_whitespaces);
  if (!model.precompiled_charsmap.empty()) {
    writer.Bytes("tokenizer.ggml.precompiled_charsmap",
                 model.precompiled_charsmap);
  }
  return absl::OkStatus();
}

// BOS, EOS, whether prompts have them, and the chat template.
// An empty prompt shows which tokens surround every prompt.
absl::Status AddPromptKeys(const Tokenizer& tokenizer, GgufWriter& writer) {
  const TokenId bos = tokenizer.bos_token();
  const TokenId eos = tokenizer.eos_token();
  if (bos >= 0) writer.Uint32("tokenizer.ggml.bos_token_id", bos);
  if (eos >= 0) writer.Uint32("tokenizer.ggml.eos_token_id", eos);
  const std::vector<TokenId> around = tokenizer.EncodePrompt("");
  const bool add_bos = !around.empty() && around.front() == bos;
  const bool add_eos = around.size() == (add_bos ? 2 : 1);
  writer.Bool("tokenizer.ggml.add_bos_token", add_bos);
  writer.Bool("tokenizer.ggml.add_eos_token", add_eos && eos >= 0);
  if (!tokenizer.chat_template().empty()) {
    writer.String("tokenizer.chat_template", tokenizer.chat_template());
  }
  return absl::OkStatus();
}

// Reads the written keys back and compares, since a GGUF file cannot represent
// every tokenizer. Differences show as another vocabulary, another prompt or a
// token whose text is split differently: whether pieces that are tokens are
// merged depends on the pre-tokenizer's name.
absl::Status CheckWritten(const Tokenizer& original, const GgufWriter& writer) {
  const std::string header = writer.Header();
  FORETOKEN_ASSIGN_OR_RETURN(
      const Gguf gguf,
      ParseGguf(
          absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(header.data()),
                              header.size()),
          "as a GGUF file"));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> written,
                             MakeGgufTokenizer(gguf.metadata));
  bool same = written->fingerprint() == original.fingerprint() &&
              written->EncodePrompt("a") == original.EncodePrompt("a");
  for (TokenId id = 0; same && id < original.vocab_size(); ++id) {
    const absl::string_view text = original.TokenBytes(id);
    same = written->Encode(text) == original.Encode(text);
  }
  if (same) return absl::OkStatus();
  return absl::UnimplementedError("as a GGUF file it would give other tokens");
}

}  // namespace

absl::Status AddGgufTokenizerKeys(const std::string& directory,
                                  int32_t vocab_size, GgufWriter& writer) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(directory));
  if (tokenizer->vocab_size() > vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": the tokenizer has ", tokenizer->vocab_size(),
                     " tokens and the model's vocab_size is ", vocab_size));
  }
  // Look for the files in the order of Tokenizer::Load. What it has accepted
  // needs no further check here.
  absl::Status added;
  std::string path = directory + "/tokenizer.model";
  for (const char* name : {"/tokenizer.json.gz", "/tokenizer.json"}) {
    if (Exists(directory + name)) path = directory + name;
  }
  if (path == directory + "/tokenizer.model") {
    added = AddSentencePiece(path, vocab_size, writer);
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
    added = AddByteLevel(json, vocab_size, writer);
  }
  if (added.ok()) added = AddPromptKeys(*tokenizer, writer);
  if (added.ok()) added = CheckWritten(*tokenizer, writer);
  return Annotate(added, path);
}

}  // namespace foretoken
