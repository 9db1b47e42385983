#include "common/text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/sentencepiece_normalizer.h"
#include "common/text/utf8.h"

namespace foretoken {
namespace {

using PieceType = SentencePieceModel::PieceType;

// Pieces as symbols of the merge table. A piece's symbol is its id; characters
// that occur in pieces without being pieces get symbols after those.
struct SymbolTable {
  BpeMerges merges;
  absl::flat_hash_map<uint32_t, int32_t> by_code_point;
  std::vector<TokenId> outputs;  // symbol -> token id
  bool merges_cross_spaces = false;
};

bool Mergeable(PieceType type) {
  return type == PieceType::kNormal || type == PieceType::kUserDefined;
}

// Whether the piece contains a space symbol after another character.
bool CrossesSpace(absl::string_view piece) {
  while (absl::StartsWith(piece, kSpaceSymbol)) piece.remove_prefix(3);
  return absl::StrContains(piece, kSpaceSymbol);
}

// Rank of every piece: position of its score in descending order; equal scores
// share a rank, so that the leftmost pair merges first.
std::vector<uint32_t> RankPieces(const SentencePieceModel& model) {
  std::vector<float> scores;
  for (const auto& piece : model.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<float>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  for (const auto& piece : model.pieces) {
    const auto at = std::lower_bound(scores.begin(), scores.end(), piece.score,
                                     std::greater<float>());
    ranks.push_back(static_cast<uint32_t>(at - scores.begin()));
  }
  return ranks;
}

// Creates the symbols of all single characters that can take part in a merge.
void AddCharacters(const SentencePieceModel& model, TokenId unknown,
                   SymbolTable& table,
                   absl::flat_hash_map<absl::string_view, int32_t>& symbols) {
  table.outputs.resize(model.pieces.size());
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    table.outputs[id] = static_cast<TokenId>(id);
    if (!Mergeable(piece.type)) continue;
    symbols[piece.text] = static_cast<int32_t>(id);
    const Utf8Step step = NextUtf8(piece.text);
    if (step.length == piece.text.size()) {
      table.by_code_point[step.code_point] = static_cast<int32_t>(id);
    }
  }
  // Merges can build a piece from characters that are not pieces themselves;
  // such a character that is left over is an unknown one.
  for (const auto& piece : model.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    for (absl::string_view rest = piece.text; !rest.empty();) {
      const Utf8Step step = NextUtf8(rest);
      const int32_t next = static_cast<int32_t>(table.outputs.size());
      if (table.by_code_point.emplace(step.code_point, next).second) {
        symbols[rest.substr(0, step.length)] = next;
        table.outputs.push_back(unknown);
      }
      rest.remove_prefix(step.length);
    }
  }
}

SymbolTable BuildSymbols(const SentencePieceModel& model, TokenId unknown) {
  SymbolTable table;
  absl::flat_hash_map<absl::string_view, int32_t> symbols;
  AddCharacters(model, unknown, table, symbols);
  const std::vector<uint32_t> ranks = RankPieces(model);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (piece.type != PieceType::kNormal) continue;
    const absl::string_view text = piece.text;
    if (CrossesSpace(text)) table.merges_cross_spaces = true;
    // SentencePiece merges any two symbols whose joined text is a piece: one
    // table entry per way to cut the piece into two symbols.
    for (size_t cut = NextUtf8(text).length; cut < text.size();
         cut += NextUtf8(text.substr(cut)).length) {
      const auto left = symbols.find(text.substr(0, cut));
      if (left == symbols.end()) continue;
      const auto right = symbols.find(text.substr(cut));
      if (right == symbols.end()) continue;
      table.merges.Add(left->second, right->second,
                       {ranks[id], static_cast<int32_t>(id)});
    }
  }
  return table;
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(Parts parts, SentencePieceNormalizer normalizer,
                         SymbolTable table, TokenId unknown,
                         std::vector<TokenId> byte_tokens,
                         std::optional<AddedTokenMatcher> controls)
      : Tokenizer(std::move(parts)),
        normalizer_(std::move(normalizer)),
        table_(std::move(table)),
        unknown_(unknown),
        byte_tokens_(std::move(byte_tokens)),
        controls_(std::move(controls)) {
    ascii_.fill(BpeSymbol::kNoMerge);
    for (const auto& [code_point, symbol] : table_.by_code_point) {
      if (code_point < ascii_.size()) ascii_[code_point] = symbol;
    }
  }

  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(
      const SentencePieceModel& model, const TokenizerConfig& config);

  std::vector<TokenId> Encode(absl::string_view text) const override;

 private:
  struct Output {
    std::vector<TokenId> ids;
    bool after_unknown = false;  // the last id stands for unknown characters
  };
  struct Buffers {
    std::vector<BpeSymbol> symbols;
    BpeMerges::Scratch scratch;
  };

  // Encodes text without control pieces.
  void EncodeText(absl::string_view text, Buffers& buffers,
                  Output& output) const;
  // Encodes normalised text without user-defined pieces.
  void EncodePlain(absl::string_view text, Buffers& buffers,
                   Output& output) const;
  // Encodes text whose ends no merge crosses.
  void EncodeSegment(absl::string_view text, Buffers& buffers,
                     Output& output) const;
  void AppendSymbol(int32_t symbol, absl::string_view text,
                    Output& output) const;
  static Parts MakeParts(const SentencePieceModel& model,
                         const TokenizerConfig& config);

  const SentencePieceNormalizer normalizer_;
  const SymbolTable table_;
  const TokenId unknown_;
  const std::vector<TokenId> byte_tokens_;  // by byte; empty: no byte fallback
  const std::optional<AddedTokenMatcher> controls_;  // those found in a text
  std::array<int32_t, 128> ascii_;  // symbols of ASCII, without a hash look-up
};

Tokenizer::Parts SentencePieceTokenizer::MakeParts(
    const SentencePieceModel& model, const TokenizerConfig& config) {
  Parts parts;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    const TokenId token = static_cast<TokenId>(id);
    const std::string text = SpaceSymbolsToSpaces(piece.text);
    switch (piece.type) {
      case PieceType::kControl:
        parts.vocabulary.Add(token, piece.text, "", TokenKind::kSpecial);
        break;
      case PieceType::kUnknown:
        parts.vocabulary.Add(token, piece.text, model.unk_surface,
                             TokenKind::kUnknown);
        break;
      case PieceType::kByte: {
        const std::string byte(1, static_cast<char>(ByteOfPiece(piece.text)));
        parts.vocabulary.Add(token, byte, byte, TokenKind::kByte);
        break;
      }
      default:
        parts.vocabulary.Add(token, text, text, TokenKind::kText);
        // A user-defined piece may begin with a literal space.
        if (piece.text[0] == ' ') parts.vocabulary.KeepLeadingSpace(token);
        break;
    }
    if (piece.type != PieceType::kControl) continue;
    if (piece.text == config.bos_token.value_or(model.bos_piece)) {
      parts.bos_token = token;
    }
    if (piece.text == config.eos_token.value_or(model.eos_piece)) {
      parts.eos_token = token;
    }
  }
  // Which spaces decoding drops follows from which ones encoding added.
  parts.rules.malformed = DecodeRules::Malformed::kByte;
  parts.rules.leading_space =
      model.remove_extra_whitespaces
          ? DecodeRules::LeadingSpace::kStripUntilText
      : model.add_dummy_prefix ? DecodeRules::LeadingSpace::kStripFromFirstToken
                               : DecodeRules::LeadingSpace::kKeep;
  // A tokenizer.model does not say whether prompts begin with BOS; Llama models
  // expect it.
  if (config.add_bos_token.value_or(true) && parts.bos_token >= 0) {
    parts.prompt_prefix = {parts.bos_token};
  }
  if (config.add_eos_token.value_or(false) && parts.eos_token >= 0) {
    parts.prompt_suffix = {parts.eos_token};
  }
  parts.chat_template = config.chat_template.value_or("");
  return parts;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Create(
    const SentencePieceModel& model, const TokenizerConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(SentencePieceNormalizer normalizer,
                             SentencePieceNormalizer::Create(model));
  TokenId unknown = -1;
  std::vector<TokenId> byte_tokens(model.byte_fallback ? 256 : 0);
  std::optional<AddedTokenMatcher> controls;
  if (model.control_pieces_in_text) controls.emplace();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (piece.type == PieceType::kUnknown) unknown = static_cast<TokenId>(id);
    if (piece.type == PieceType::kByte) {
      byte_tokens[ByteOfPiece(piece.text)] = static_cast<TokenId>(id);
    }
    if (piece.type == PieceType::kControl && controls.has_value()) {
      AddedToken token;
      token.id = static_cast<TokenId>(id);
      controls->Add(token, piece.text);
    }
  }
  return std::make_unique<SentencePieceTokenizer>(
      MakeParts(model, config), std::move(normalizer),
      BuildSymbols(model, unknown), unknown, std::move(byte_tokens),
      std::move(controls));
}

std::vector<TokenId> SentencePieceTokenizer::Encode(
    absl::string_view text) const {
  Output output;
  output.ids.reserve(text.size() / 3);
  Buffers buffers;
  if (!controls_.has_value()) {
    EncodeText(text, buffers, output);
    return std::move(output.ids);
  }
  controls_->Split(text, [&](TokenId id, absl::string_view part) {
    if (id < 0) return EncodeText(part, buffers, output);
    output.ids.push_back(id);
    output.after_unknown = false;
  });
  return std::move(output.ids);
}

void SentencePieceTokenizer::EncodeText(absl::string_view text,
                                        Buffers& buffers,
                                        Output& output) const {
  const std::string normalized = normalizer_.Normalize(text);
  // User-defined pieces are matched first; BPE works on the text between them.
  const PrefixTrie& user_defined = normalizer_.user_defined();
  absl::string_view rest = normalized;
  size_t plain = 0;  // bytes of `rest` that hold no user-defined piece
  while (!user_defined.empty() && plain < rest.size()) {
    const PrefixTrie::Match match = user_defined.Longest(rest.substr(plain));
    if (match.length == 0) {
      plain += NextUtf8(rest.substr(plain)).length;
      continue;
    }
    EncodePlain(rest.substr(0, plain), buffers, output);
    output.ids.push_back(match.value);
    output.after_unknown = false;
    rest.remove_prefix(plain + match.length);
    plain = 0;
  }
  EncodePlain(rest, buffers, output);
}

void SentencePieceTokenizer::EncodePlain(absl::string_view text,
                                         Buffers& buffers,
                                         Output& output) const {
  if (table_.merges_cross_spaces) {
    EncodeSegment(text, buffers, output);
    return;
  }
  // Cut before every run of spaces: see the header.
  while (!text.empty()) {
    size_t end = 0;
    while (absl::StartsWith(text.substr(end), kSpaceSymbol)) end += 3;
    end = std::min(text.find(kSpaceSymbol, end), text.size());
    EncodeSegment(text.substr(0, end), buffers, output);
    text.remove_prefix(end);
  }
}

void SentencePieceTokenizer::EncodeSegment(absl::string_view text,
                                           Buffers& buffers,
                                           Output& output) const {
  std::vector<BpeSymbol>& symbols = buffers.symbols;
  symbols.clear();
  for (size_t at = 0; at < text.size();) {
    const uint8_t byte = static_cast<uint8_t>(text[at]);
    const uint32_t begin = static_cast<uint32_t>(at);
    // The text is normalised, hence valid UTF-8, and most of it is ASCII.
    if (byte < ascii_.size()) {
      symbols.push_back({ascii_[byte], begin});
      ++at;
      continue;
    }
    const Utf8Step step = NextUtf8(text.substr(at));
    const auto symbol = table_.by_code_point.find(step.code_point);
    symbols.push_back({symbol == table_.by_code_point.end()
                           ? BpeSymbol::kNoMerge
                           : symbol->second,
                       begin});
    at += step.length;
  }
  table_.merges.Apply(symbols, buffers.scratch);
  for (size_t i = 0; i < symbols.size(); ++i) {
    const size_t end =
        i + 1 < symbols.size() ? symbols[i + 1].begin : text.size();
    AppendSymbol(symbols[i].id,
                 text.substr(symbols[i].begin, end - symbols[i].begin), output);
  }
}

void SentencePieceTokenizer::AppendSymbol(int32_t symbol,
                                          absl::string_view text,
                                          Output& output) const {
  const TokenId id =
      symbol == BpeSymbol::kNoMerge ? unknown_ : table_.outputs[symbol];
  const bool is_unknown = id == unknown_;
  // A symbol that is unknown even after merging is one character.
  if (is_unknown && !byte_tokens_.empty()) {
    for (const char byte : text) {
      output.ids.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    }
  } else if (!is_unknown || !output.after_unknown) {  // one id per unknown run
    output.ids.push_back(id);
  }
  output.after_unknown = is_unknown && byte_tokens_.empty();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    const SentencePieceModel& model, const TokenizerConfig& config) {
  return SentencePieceTokenizer::Create(model, config);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    absl::string_view bytes, const TokenizerConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(const SentencePieceModel model,
                             ParseSentencePieceModel(bytes));
  return SentencePieceTokenizer::Create(model, config);
}

}  // namespace foretoken
