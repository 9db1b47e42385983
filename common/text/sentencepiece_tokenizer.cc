#include "common/text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
  CharacterSymbols characters;
  std::vector<TokenId> outputs;  // symbol -> token id
  bool merges_cross_spaces = false;
};

bool Mergeable(PieceType type) {
  return type == PieceType::kNormal || type == PieceType::kUserDefined;
}

// Rank of every piece, 0 for the highest score: SentencePiece merges the pair
// with the highest score first, BpeMerges the one with the lowest rank. Equal
// scores share a rank, so that the leftmost pair merges first.
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
      table.characters.Set(step.code_point, static_cast<int32_t>(id));
    }
  }
  // Merges can build a piece from characters that are not pieces themselves;
  // such a character that is left over is an unknown one.
  for (const auto& piece : model.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    for (absl::string_view rest = piece.text; !rest.empty();) {
      const Utf8Step step = NextUtf8(rest);
      if (table.characters.Find(step.code_point) == BpeSymbol::kNoMerge) {
        const int32_t next = static_cast<int32_t>(table.outputs.size());
        table.characters.Set(step.code_point, next);
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
    if (UpToSpace(text) != text) table.merges_cross_spaces = true;
    // SentencePiece merges any two symbols whose joined text is a piece: one
    // table entry per way to cut the piece into two symbols.
    // O(L^2) bytes hashed for a piece of L bytes; kMaxPieceBytes bounds L.
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
                         AddedTokenMatcher controls, bool controls_in_text)
      : Tokenizer(std::move(parts)),
        normalizer_(std::move(normalizer)),
        table_(std::move(table)),
        unknown_(unknown),
        byte_tokens_(std::move(byte_tokens)),
        controls_(std::move(controls)),
        controls_in_text_(controls_in_text) {}

  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(
      const SentencePieceModel& model, const TokenizerConfig& config);

  std::vector<TokenId> Encode(absl::string_view text) const override;
  std::vector<TokenId> EncodeSpans(
      absl::Span<const PromptSpan> spans) const override;

 private:
  struct Output {
    std::vector<TokenId> ids;
    bool after_unknown = false;  // the last id stands for unknown characters
  };
  struct Buffers {
    std::vector<BpeSymbol> symbols;
    BpeMerges::Scratch scratch;
  };

  // Encodes text without control pieces; `spans`: whose joined text it is a
  // part of, or nullptr.
  void EncodeText(absl::string_view text, const JoinedSpans* spans,
                  Buffers& buffers, Output& output) const;
  // Encodes normalised text without user-defined pieces.
  void EncodePlain(absl::string_view text, Buffers& buffers,
                   Output& output) const;
  // Encodes text whose ends no merge crosses.
  void EncodeSegment(absl::string_view text, Buffers& buffers,
                     Output& output) const;
  void AppendSymbol(int32_t symbol, absl::string_view text,
                    Output& output) const;

  const SentencePieceNormalizer normalizer_;
  const SymbolTable table_;
  const TokenId unknown_;
  const std::vector<TokenId> byte_tokens_;  // by byte; empty: no byte fallback
  const AddedTokenMatcher controls_;
  const bool controls_in_text_;  // whether Encode finds them
};

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Create(
    const SentencePieceModel& model, const TokenizerConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(SentencePieceNormalizer normalizer,
                             SentencePieceNormalizer::Create(model));
  Parts parts;
  TokenId unknown = -1;
  std::vector<TokenId> byte_tokens(model.byte_fallback ? 256 : 0);
  AddedTokenMatcher controls;
  const std::string bos = config.bos_token.value_or(model.bos_piece);
  const std::string eos = config.eos_token.value_or(model.eos_piece);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    const TokenId token = static_cast<TokenId>(id);
    switch (piece.type) {
      case PieceType::kControl: {
        parts.vocabulary.Add(token, piece.text, "", TokenKind::kSpecial);
        if (piece.text == bos) parts.bos_token = token;
        if (piece.text == eos) parts.eos_token = token;
        AddedToken added;
        added.id = token;
        added.special = true;
        controls.Add(added, piece.text);
        break;
      }
      case PieceType::kUnknown:
        // SentencePiece decodes the unknown piece as unk_surface.
        parts.vocabulary.Add(token, piece.text, model.unk_surface,
                             TokenKind::kUnknown);
        unknown = token;
        break;
      case PieceType::kByte: {
        const int byte = ByteOfPiece(piece.text);
        const std::string text(1, static_cast<char>(byte));
        parts.vocabulary.Add(token, text, text, TokenKind::kByte);
        byte_tokens[byte] = token;
        break;
      }
      default:
        const std::string text = SpaceSymbolsToSpaces(piece.text);
        parts.vocabulary.Add(token, text, text, TokenKind::kText);
        // A user-defined piece may begin with a literal space.
        if (piece.text[0] == ' ') parts.vocabulary.KeepLeadingSpace(token);
        break;
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
  parts.fim = config.fim;
  return std::make_unique<SentencePieceTokenizer>(
      std::move(parts), std::move(normalizer), BuildSymbols(model, unknown),
      unknown, std::move(byte_tokens), std::move(controls),
      model.control_pieces_in_text);
}

std::vector<TokenId> SentencePieceTokenizer::Encode(
    absl::string_view text) const {
  Output output;
  output.ids.reserve(text.size() / 3);
  Buffers buffers;
  // SentencePiece itself never finds control pieces in text; llama.cpp, for
  // GGUF files, does.
  if (!controls_in_text_) {
    EncodeText(text, nullptr, buffers, output);
    return std::move(output.ids);
  }
  controls_.Split(text, [&](TokenId id, absl::string_view part) {
    if (id < 0) return EncodeText(part, nullptr, buffers, output);
    output.ids.push_back(id);
    output.after_unknown = false;
  });
  return std::move(output.ids);
}

std::vector<TokenId> SentencePieceTokenizer::EncodeSpans(
    absl::Span<const PromptSpan> spans) const {
  const JoinedSpans joined(spans);
  Output output;
  output.ids.reserve(joined.text().size() / 3);
  Buffers buffers;
  controls_.Split(
      joined.text(),
      [&](const AddedToken&, size_t begin, size_t end) {
        return !joined.HasRequest(begin, end);
      },
      [&](TokenId id, absl::string_view part) {
        if (id < 0) return EncodeText(part, &joined, buffers, output);
        output.ids.push_back(id);
        output.after_unknown = false;
      });
  return std::move(output.ids);
}

void SentencePieceTokenizer::EncodeText(absl::string_view text,
                                        const JoinedSpans* spans,
                                        Buffers& buffers,
                                        Output& output) const {
  const std::string normalized = normalizer_.Normalize(text);
  std::optional<NormalizedSpans> mapped;  // made for the first control piece
  const auto may_control = [&](TokenId id, size_t begin, size_t end) {
    if (spans == nullptr ||
        !IsControlToken(vocabulary().content(id), /*special=*/false)) {
      return true;
    }
    if (!mapped.has_value()) {
      const size_t offset = text.data() - spans->text().data();
      mapped.emplace(*spans, offset, offset + text.size(), normalized,
                     [this](absl::string_view part) {
                       return normalizer_.Normalize(part);
                     });
    }
    return !mapped->HasRequest(begin, end);
  };
  // User-defined pieces are matched first; BPE works on the text between them.
  const PrefixTrie& user_defined = normalizer_.user_defined();
  absl::string_view rest = normalized;
  size_t plain = 0;  // bytes of `rest` that hold no user-defined piece
  while (!user_defined.empty() && plain < rest.size()) {
    const PrefixTrie::Match match = user_defined.Longest(rest.substr(plain));
    const size_t at = rest.data() + plain - normalized.data();
    if (match.length == 0 || !may_control(match.value, at, at + match.length)) {
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
    const absl::string_view segment = UpToSpace(text);
    EncodeSegment(segment, buffers, output);
    text.remove_prefix(segment.size());
  }
}

void SentencePieceTokenizer::EncodeSegment(absl::string_view text,
                                           Buffers& buffers,
                                           Output& output) const {
  std::vector<BpeSymbol>& symbols = buffers.symbols;
  symbols.clear();
  // The text is normalised, hence valid UTF-8.
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.substr(at));
    symbols.push_back(
        {table_.characters.Find(step.code_point), static_cast<uint32_t>(at)});
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
