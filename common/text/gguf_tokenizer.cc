#include "common/text/gguf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf.h"
#include "common/gguf/special_tokens.h"
#include "common/text/hf_tokenizer.h"
#include "common/text/sentencepiece_tokenizer.h"
#include "common/text/utf8.h"
#include "common/text/vocabulary.h"

namespace foretoken {
namespace {

constexpr char kModel[] = "tokenizer.ggml.model";
constexpr char kPre[] = "tokenizer.ggml.pre";
constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kTypes[] = "tokenizer.ggml.token_type";
constexpr char kScores[] = "tokenizer.ggml.scores";
constexpr char kMerges[] = "tokenizer.ggml.merges";
constexpr char kAddBos[] = "tokenizer.ggml.add_bos_token";
constexpr char kAddEos[] = "tokenizer.ggml.add_eos_token";
constexpr char kAddSep[] = "tokenizer.ggml.add_sep_token";
constexpr char kAddSpace[] = "tokenizer.ggml.add_space_prefix";
constexpr char kRemoveSpaces[] = "tokenizer.ggml.remove_extra_whitespaces";
constexpr char kCharsmap[] = "tokenizer.ggml.precompiled_charsmap";
constexpr char kTemplate[] = "tokenizer.chat_template";

// Limits on hostile files, far above real ones: a sparse file can hold huge
// values and take no space on disk.
constexpr uint64_t kMaxValueBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxMerges = uint64_t{2} * Vocabulary::kMaxSize;

// Values of tokenizer.ggml.token_type, which are those of SentencePiece.
enum TokenType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// --- pre-tokenizers ---------------------------------------------------------

// Steps of a tokenizer.json: regular expressions that isolate their matches,
// in the order in which they are applied.
struct PreTokenizerFormat {
  const char* name;
  std::vector<const char*> patterns = {};  // before `digits`
  bool digits = false;                     // isolates each digit
  bool gpt2_pattern = false;               // ByteLevel's own, at the end
  bool nfc = false;                        // normalised first
  // Pieces that are a token as a whole are not merged (`ignore_merges`), and
  // prompts begin with BOS unless the file says otherwise.
  bool whole_pieces_and_bos = false;
};

// The letters of deepseek-llm: cased scripts, as its tokenizer.json lists them.
constexpr char kDeepseekLetters[] =
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf"
    "\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d"
    "\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
    "]+";
constexpr char kDeepseekHan[] = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
// deepseek-llm's "\\s+$", applied where line ends are pieces of their own. The
// look-behind tries a run of spaces once, at its beginning, and the possessive
// `++` never backtracks: linear time on long runs.
constexpr char kSpacesAtEnd[] = "(?<!\\s)\\s++(?!\\S)";
constexpr char kDeepseekMarks[] =
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
// ByteLevel's own pattern, for formats with steps after it. Source:
// openai/gpt-2, encoder.py.
constexpr char kGpt2Pieces[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|)"
    R"(\s+(?!\S)|\s+)";

const std::vector<PreTokenizerFormat>& Formats() {
  static const auto* const formats = new std::vector<PreTokenizerFormat>{
      {.name = "gpt-2", .gpt2_pattern = true},
      // Not GPT-2's: marks and numbers are pieces of their own, numbers in
      // threes from the left. Source: llama.cpp, llama-vocab.cpp, the default
      // branch of llm_tokenizer_bpe.
      {.name = "default",
       .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pieces, R"(\p{N}+)",
                    "[0-9][0-9][0-9]"}},
      {.name = "smollm", .digits = true, .gpt2_pattern = true},
      {.name = "llama-bpe",
       .patterns = {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)"
                    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
                    R"(\s+(?!\S)|\s+)"},
       .whole_pieces_and_bos = true},
      {.name = "qwen2",
       .patterns = {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)"
                    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
                    R"(\s+(?!\S)|\s+)"},
       .nfc = true},
      {.name = "tekken",
       .patterns =
           {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
            R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
            R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
            R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
            R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       .whole_pieces_and_bos = true},
      {.name = "deepseek-llm",
       .patterns = {"[\r\n]", kDeepseekLetters, kDeepseekMarks, kSpacesAtEnd,
                    kDeepseekHan},
       .digits = true},
      {.name = "deepseek-coder",
       .patterns = {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kDeepseekHan},
       .digits = true},
  };
  return *formats;
}

Json PreTokenizerJson(const PreTokenizerFormat& format) {
  Json steps = Json::array();
  for (const char* pattern : format.patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  if (format.digits) {
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  }
  // Always last: it maps bytes to the alphabet of the vocabulary.
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"use_regex", format.gpt2_pattern}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// --- vocabulary -------------------------------------------------------------

struct Tokens {
  std::vector<absl::string_view> texts;  // by id
  std::vector<int64_t> types;            // as many
  size_t listed = 0;                     // in the file

  int64_t size() const { return static_cast<int64_t>(texts.size()); }
};

// Drops the unused tokens at the end, with which converters pad a vocabulary to
// the rows of the embedding: the model's own files do not have them.
absl::StatusOr<Tokens> ReadTokens(const GgufMetadata& metadata) {
  FORETOKEN_ASSIGN_OR_RETURN(auto texts,
                             metadata.Strings(kTokens, Vocabulary::kMaxSize));
  if (!texts.has_value() || texts->empty()) {
    return metadata.Invalid(
        kTokens, absl::StrCat("a list of 1..", Vocabulary::kMaxSize));
  }
  FORETOKEN_ASSIGN_OR_RETURN(auto types,
                             metadata.Integers(kTypes, texts->size()));
  Tokens tokens;
  tokens.texts = *std::move(texts);
  tokens.listed = tokens.texts.size();
  // A file without types has normal tokens only.
  tokens.types = types.has_value() ? *std::move(types)
                                   : std::vector<int64_t>(tokens.texts.size(),
                                                          int64_t{kNormal});
  if (tokens.types.size() != tokens.texts.size()) {
    return metadata.Invalid(kTypes,
                            absl::StrCat("as many as the ", tokens.texts.size(),
                                         " of tokenizer.ggml.tokens"));
  }
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.types[id] < kNormal || tokens.types[id] > kByte) {
      return metadata.Invalid(
          kTypes,
          absl::StrCat("types 1..6, not ", tokens.types[id], " of token ", id));
    }
    // JSON, into which a gpt2 vocabulary is converted, holds UTF-8 only.
    if (!IsValidUtf8(tokens.texts[id])) {
      return metadata.Invalid(
          kTokens, absl::StrCat("UTF-8, which token ", id, " is not"));
    }
  }
  while (!tokens.types.empty() && tokens.types.back() == kUnused) {
    tokens.types.pop_back();
    tokens.texts.pop_back();
  }
  return tokens;
}

// Refuses values that are too large to be copied.
absl::Status CheckSizes(const GgufMetadata& metadata) {
  for (const auto& [key, value] : metadata.values()) {
    if (absl::StartsWith(key, "tokenizer.") &&
        value.bytes.size() > kMaxValueBytes) {
      return metadata.Invalid(
          key, absl::StrCat("at most ", kMaxValueBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

// Refuses unknown tokenizer keys, any of which may change the ids of a text:
// wrong ids would go unnoticed. Keys that name a token are harmless.
absl::Status RefuseUnknownKeys(const GgufMetadata& metadata) {
  constexpr const char* kKnown[] = {kModel,
                                    kPre,
                                    kTokens,
                                    kTypes,
                                    kScores,
                                    kMerges,
                                    kAddBos,
                                    kAddEos,
                                    kAddSep,
                                    kAddSpace,
                                    kRemoveSpaces,
                                    kCharsmap,
                                    "tokenizer.ggml.token_type_count"};
  for (const auto& [key, value] : metadata.values()) {
    if (!absl::StartsWith(key, "tokenizer.ggml.") ||
        absl::EndsWith(key, "_token_id") || absl::EndsWith(key, "_token_ids") ||
        std::find(std::begin(kKnown), std::end(kKnown), key) !=
            std::end(kKnown)) {
      continue;
    }
    return metadata.Unsupported(key, "no such key");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const auto add_sep, metadata.Bool(kAddSep));
  if (add_sep.value_or(false)) return metadata.Unsupported(kAddSep, "false");
  return absl::OkStatus();
}

// Under their keys, or the older ones that such files still have.
// An id outside the vocabulary is none: the model is good for all else.
absl::StatusOr<FimTokens> ReadFimTokens(const GgufMetadata& metadata,
                                        int64_t vocab_size) {
  constexpr std::pair<const char*, TokenId FimTokens::*> kKeys[] = {
      {"tokenizer.ggml.prefix_token_id", &FimTokens::prefix},
      {"tokenizer.ggml.suffix_token_id", &FimTokens::suffix},
      {"tokenizer.ggml.middle_token_id", &FimTokens::middle},
      {"tokenizer.ggml.fim_pre_token_id", &FimTokens::prefix},
      {"tokenizer.ggml.fim_suf_token_id", &FimTokens::suffix},
      {"tokenizer.ggml.fim_mid_token_id", &FimTokens::middle},
      {"tokenizer.ggml.fim_pad_token_id", &FimTokens::pad},
      {"tokenizer.ggml.fim_rep_token_id", &FimTokens::repository},
      {"tokenizer.ggml.fim_sep_token_id", &FimTokens::file}};
  constexpr int64_t kMaxId = 0xFFFFFFFF;
  FimTokens tokens;
  for (const auto& [key, member] : kKeys) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> id,
                               metadata.Integer(key, 0, kMaxId));
    if (id.value_or(vocab_size) >= vocab_size) continue;
    tokens.*member = static_cast<TokenId>(*id);
  }
  return tokens;
}

absl::StatusOr<TokenizerConfig> ReadConfig(const GgufMetadata& metadata,
                                           const Tokens& tokens) {
  TokenizerConfig config;
  FORETOKEN_ASSIGN_OR_RETURN(config.add_bos_token, metadata.Bool(kAddBos));
  FORETOKEN_ASSIGN_OR_RETURN(config.add_eos_token, metadata.Bool(kAddEos));
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> bos,
                             GgufBosToken(metadata, tokens.size()));
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> eos,
                             GgufEosToken(metadata, tokens.size()));
  FORETOKEN_ASSIGN_OR_RETURN(config.fim,
                             ReadFimTokens(metadata, tokens.size()));
  if (bos) config.bos_token = std::string(tokens.texts[*bos]);
  if (eos) config.eos_token = std::string(tokens.texts[*eos]);
  FORETOKEN_ASSIGN_OR_RETURN(const auto chat, metadata.String(kTemplate));
  if (chat.has_value()) config.chat_template = std::string(*chat);
  for (const auto& [key, asked, token] :
       {std::tuple{kAddBos, config.add_bos_token, config.bos_token},
        std::tuple{kAddEos, config.add_eos_token, config.eos_token}}) {
    if (asked.value_or(false) && !token.has_value()) {
      return metadata.Invalid(key, "false where no such token is named");
    }
  }
  return config;
}

// --- gpt2 -------------------------------------------------------------------

absl::StatusOr<const PreTokenizerFormat*> FindFormat(
    const GgufMetadata& metadata) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto pre, metadata.String(kPre));
  for (const PreTokenizerFormat& format : Formats()) {
    if (pre.has_value() && *pre == format.name) return &format;
  }
  return metadata.Unsupported(
      kPre, absl::StrCat("one of ", absl::StrJoin(GgufPreTokenizers(), ", ")));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeByteLevel(
    const GgufMetadata& metadata, const Tokens& tokens) {
  FORETOKEN_ASSIGN_OR_RETURN(const PreTokenizerFormat* format,
                             FindFormat(metadata));
  FORETOKEN_ASSIGN_OR_RETURN(const auto add_space, metadata.Bool(kAddSpace));
  if (add_space.value_or(false)) {
    return metadata.Unsupported(kAddSpace, "false with the model gpt2");
  }
  FORETOKEN_ASSIGN_OR_RETURN(TokenizerConfig config,
                             ReadConfig(metadata, tokens));
  if (format->whole_pieces_and_bos && !config.add_bos_token.has_value()) {
    config.add_bos_token = config.bos_token.has_value();
  }
  Json vocabulary = Json::object();
  Json added = Json::array();
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const std::string text(tokens.texts[id]);
    const int64_t type = tokens.types[id];
    if (type == kUnused) continue;
    if (type == kByte) {
      return metadata.Unsupported(
          kTypes,
          absl::StrCat("no byte token such as ", id, " with the model gpt2"));
    }
    // Two ids of one text could not both be encoded.
    if (!vocabulary.emplace(text, id).second) {
      return metadata.Invalid(
          kTokens, absl::StrCat("each once; token ", id, " is there before"));
    }
    // Control tokens are special, user-defined ones are plain text that is
    // never cut.
    if (type == kNormal) continue;
    added.push_back({{"id", id},
                     {"content", text},
                     {"special", type != kUserDefined},
                     {"normalized", false}});
  }
  FORETOKEN_ASSIGN_OR_RETURN(const auto merges,
                             metadata.Strings(kMerges, kMaxMerges));
  if (!merges.has_value()) return metadata.Invalid(kMerges, "a list of pairs");
  Json pairs = Json::array();
  for (const absl::string_view merge : *merges) {
    pairs.push_back(std::string(merge));
  }
  const Json file = {
      {"normalizer", format->nfc ? Json{{"type", "NFC"}} : Json()},
      {"pre_tokenizer", PreTokenizerJson(*format)},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", std::move(added)},
      {"model",
       {{"type", "BPE"},
        {"vocab", std::move(vocabulary)},
        {"merges", std::move(pairs)},
        {"ignore_merges", format->whole_pieces_and_bos}}}};
  auto tokenizer = MakeHfTokenizerFromJson(file, config);
  if (!tokenizer.ok()) {
    return Annotate(tokenizer.status(),
                    absl::StrCat(metadata.file(), ": as a tokenizer.json"));
  }
  return tokenizer;
}

// --- llama ------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePiece(
    const GgufMetadata& metadata, const Tokens& tokens) {
  FORETOKEN_ASSIGN_OR_RETURN(const TokenizerConfig config,
                             ReadConfig(metadata, tokens));
  FORETOKEN_ASSIGN_OR_RETURN(const auto scores,
                             metadata.Numbers(kScores, tokens.listed));
  // Scores of the padding at the end, which ReadTokens has dropped, are not
  // needed.
  if (!scores.has_value() || scores->size() < tokens.texts.size()) {
    return metadata.Invalid(
        kScores,
        absl::StrCat("one for each of the ", tokens.texts.size(), " tokens"));
  }
  SentencePieceModel model;
  model.control_pieces_in_text = true;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const auto type =
        static_cast<SentencePieceModel::PieceType>(tokens.types[id]);
    model.pieces.push_back({std::string(tokens.texts[id]),
                            static_cast<float>((*scores)[id]), type});
    model.byte_fallback =
        model.byte_fallback || type == SentencePieceModel::PieceType::kByte;
  }
  FORETOKEN_ASSIGN_OR_RETURN(const auto add_space, metadata.Bool(kAddSpace));
  FORETOKEN_ASSIGN_OR_RETURN(const auto remove, metadata.Bool(kRemoveSpaces));
  // llama.cpp's defaults for the model llama.
  model.add_dummy_prefix = add_space.value_or(true);
  model.remove_extra_whitespaces = remove.value_or(false);
  if (const GgufValue* table = metadata.Find(kCharsmap)) {
    if (!table->is_array() || GgufTypeBytes(table->element) != 1) {
      return metadata.Invalid(kCharsmap, "a list of bytes");
    }
    model.precompiled_charsmap = std::string(table->bytes);
  }
  FORETOKEN_RETURN_IF_ERROR(
      Annotate(CheckSentencePieceModel(model), metadata.file()));
  auto tokenizer = MakeSentencePieceTokenizer(model, config);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), metadata.file());
  return tokenizer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(
    const GgufMetadata& metadata) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto model, metadata.String(kModel));
  if (!model.has_value()) {
    return absl::NotFoundError(absl::StrCat(
        metadata.file(), ": has no vocabulary: ", kModel, " is missing"));
  }
  // Sizes first: everything below copies values.
  FORETOKEN_RETURN_IF_ERROR(CheckSizes(metadata));
  FORETOKEN_RETURN_IF_ERROR(RefuseUnknownKeys(metadata));
  FORETOKEN_ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(metadata));
  if (*model == "gpt2") return MakeByteLevel(metadata, tokens);
  if (*model == "llama") return MakeSentencePiece(metadata, tokens);
  return metadata.Unsupported(kModel, "gpt2 or llama");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(
    const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const MappedFile map, MappedFile::Open(path));
  FORETOKEN_ASSIGN_OR_RETURN(const Gguf gguf, ParseGguf(map.bytes(), path));
  return MakeGgufTokenizer(gguf.metadata);
}

std::vector<std::string> GgufPreTokenizers() {
  std::vector<std::string> names;
  for (const PreTokenizerFormat& format : Formats()) {
    names.push_back(format.name);
  }
  return names;
}

std::string GgufPreTokenizerOf(const Json& tokenizer_json) {
  // Steps in the form of PreTokenizerJson; a single one may stand alone.
  Json steps = Json::array();
  const Json pre = tokenizer_json.value("pre_tokenizer", Json());
  const bool sequence = pre.is_object() && pre.contains("pretokenizers");
  const Json list = sequence ? pre.at("pretokenizers") : Json::array({pre});
  for (const Json& step : list) {
    if (!step.is_object()) return "";
    steps.push_back(step);
    steps.back().erase("trim_offsets");  // does not affect ids
    // ByteLevel's defaults, left out by older files.
    if (step.value("type", Json()) == "ByteLevel") {
      steps.back().emplace("add_prefix_space", true);
      steps.back().emplace("use_regex", true);
    }
  }
  const Json normalizer = tokenizer_json.value("normalizer", Json());
  for (const PreTokenizerFormat& format : Formats()) {
    const Json want = format.nfc ? Json{{"type", "NFC"}} : Json();
    if (steps == PreTokenizerJson(format).at("pretokenizers") &&
        normalizer == want) {
      return format.name;
    }
  }
  return "";
}

}  // namespace foretoken
