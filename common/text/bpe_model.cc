#include "common/text/bpe_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/byte_level.h"
#include "common/text/json_fields.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/utf8.h"
#include "common/text/vocabulary.h"

namespace foretoken {
namespace {

// One entry of "merges": "left right" or ["left", "right"].
absl::Status SplitMerge(const Json& entry, const std::string& where,
                        std::string& left, std::string& right) {
  if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
      entry[1].is_string()) {
    left = entry[0].get<std::string>();
    right = entry[1].get<std::string>();
    return absl::OkStatus();
  }
  if (entry.is_string()) {
    const std::string& text = entry.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos &&
        text.find(' ', space + 1) == std::string::npos) {
      left = text.substr(0, space);
      right = text.substr(space + 1);
      return absl::OkStatus();
    }
  }
  return BadField(where, entry, "\"left right\" or [\"left\", \"right\"]");
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Create(const Json& field, bool byte_level) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json type, Member(field, "model", "type"));
  if (type != "BPE" && !type.is_null()) {
    return BadField("model.type", type, "BPE; others are not supported");
  }
  // These options would change the ids. Files often carry them as null, "" or
  // 0, which mean off.
  for (const char* name :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    FORETOKEN_ASSIGN_OR_RETURN(const Json value, Member(field, "model", name));
    if (!value.is_null() && value != "" && value != 0) {
      return BadField(absl::StrCat("model.", name), value,
                      "nothing; it is not supported");
    }
  }
  BpeModel model;
  model.byte_level_ = byte_level;
  FORETOKEN_ASSIGN_OR_RETURN(
      model.byte_fallback_, BoolMember(field, "model", "byte_fallback", false));
  FORETOKEN_ASSIGN_OR_RETURN(model.fuse_unknown_,
                             BoolMember(field, "model", "fuse_unk", false));
  FORETOKEN_ASSIGN_OR_RETURN(
      model.ignore_merges_, BoolMember(field, "model", "ignore_merges", false));
  FORETOKEN_RETURN_IF_ERROR(model.LoadVocabulary(field));
  FORETOKEN_RETURN_IF_ERROR(model.LoadUnknown(field));
  FORETOKEN_RETURN_IF_ERROR(model.LoadMerges(field));
  // The order matters: the others look tokens up in the vocabulary.
  FORETOKEN_RETURN_IF_ERROR(model.LoadBytes(byte_level));
  model.IndexCharacters();
  return model;
}

absl::Status BpeModel::LoadVocabulary(const Json& model) {
  const auto vocabulary = model.find("vocab");
  if (vocabulary == model.end() || !vocabulary->is_object() ||
      vocabulary->empty()) {
    return absl::InvalidArgumentError(
        "model.vocab: want an object that is not empty");
  }
  vocabulary_.reserve(vocabulary->size());
  // Ids may repeat here; BuildVocabulary (hf_tokenizer.cc) refuses that.
  for (const auto& [token, id] : vocabulary->items()) {
    if (!id.is_number_integer() || id < 0 || id >= Vocabulary::kMaxSize) {
      return BadField(absl::StrCat("model.vocab[\"", token, "\"]"), id,
                      absl::StrCat("0..", Vocabulary::kMaxSize - 1));
    }
    vocabulary_[token] = id.get<TokenId>();
  }
  return absl::OkStatus();
}

absl::Status BpeModel::LoadUnknown(const Json& model) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json token,
                             Member(model, "model", "unk_token"));
  if (token.is_null()) return absl::OkStatus();
  if (!token.is_string()) return BadField("model.unk_token", token, "a string");
  const auto id = vocabulary_.find(token.get<std::string>());
  if (id == vocabulary_.end()) {
    return BadField("model.unk_token", token, "a token of model.vocab");
  }
  unknown_ = id->second;
  return absl::OkStatus();
}

absl::Status BpeModel::LoadMerges(const Json& model) {
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) {
    return absl::InvalidArgumentError("model.merges: want a list");
  }
  // The position in the list is the rank.
  merges_ = BpeMerges(merges->size());
  // Optimistic; a merge that crosses a space clears it below.
  cut_at_spaces_ = !byte_level_ && vocabulary_.contains(kSpaceSymbol);
  std::string left;
  std::string right;
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string where = absl::StrCat("model.merges[", i, "]");
    FORETOKEN_RETURN_IF_ERROR(SplitMerge((*merges)[i], where, left, right));
    const std::string merged = left + right;
    TokenId ids[3];
    const std::string* parts[3] = {&left, &right, &merged};
    for (int part = 0; part < 3; ++part) {
      const auto id = vocabulary_.find(*parts[part]);
      if (id == vocabulary_.end()) {
        return BadField(where, (*merges)[i],
                        absl::StrCat("tokens of model.vocab, where there is no "
                                     "\"",
                                     *parts[part], "\""));
      }
      ids[part] = id->second;
    }
    merges_.Add(ids[0], ids[1], {static_cast<uint32_t>(i), ids[2]});
    if (UpToSpace(merged) != merged) cut_at_spaces_ = false;
  }
  return absl::OkStatus();
}

absl::Status BpeModel::LoadBytes(bool byte_level) {
  bytes_.fill(-1);
  if (!byte_level && !byte_fallback_) return absl::OkStatus();
  // Byte-level models write bytes in the GPT-2 alphabet, models with fallback
  // as <0x00>..<0xFF>.
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    if (byte_level) {
      AppendUtf8(ByteLevelCodePoint(static_cast<uint8_t>(byte)), name);
    } else {
      name = BytePiece(byte);
    }
    const auto id = vocabulary_.find(name);
    if (id != vocabulary_.end()) {
      bytes_[byte] = id->second;
    } else if (!byte_level) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model.byte_fallback: true, but model.vocab has no ", name));
    } else if (byte_fallback_ || unknown_ >= 0) {
      // AppendBytes leaves out bytes without a token. That is only right if the
      // original has nothing to put in their place.
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab: has no \"", name,
                       "\", and an unknown token or byte_fallback for bytes "
                       "of a byte-level vocabulary is not supported"));
    }
  }
  return absl::OkStatus();
}

void BpeModel::IndexCharacters() {
  for (const auto& [token, id] : vocabulary_) {
    // ignore_merges compares whole pieces, which are raw bytes here, while a
    // byte-level vocabulary spells them in the GPT-2 alphabet.
    if (ignore_merges_) {
      std::optional<std::string> piece =
          byte_level_ ? DecodeByteLevel(token) : token;
      if (piece.has_value()) whole_pieces_[*std::move(piece)] = id;
    }
    if (byte_level_) continue;
    // An empty token gets a step that cannot match its length.
    const Utf8Step step = NextUtf8(token.empty() ? " " : token);
    if (step.length == token.size()) characters_.Set(step.code_point, id);
  }
}

void BpeModel::Encode(absl::string_view piece, Buffers& buffers,
                      std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    const auto whole = whole_pieces_.find(piece);
    if (whole != whole_pieces_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  // Without merges across spaces, cutting before every run of spaces gives the
  // same ids, and keeps the pieces short enough for ApplyToFew.
  if (!cut_at_spaces_) return EncodeWhole(piece, buffers, ids);
  while (!piece.empty()) {
    const absl::string_view word = UpToSpace(piece);
    EncodeWhole(word, buffers, ids);
    piece.remove_prefix(word.size());
  }
}

void BpeModel::EncodeWhole(absl::string_view piece, Buffers& buffers,
                           std::vector<TokenId>& ids) const {
  buffers.symbols.clear();
  if (byte_level_) {
    AppendBytes(piece, buffers);
  } else {
    AppendCharacters(piece, buffers);
  }
  merges_.Apply(buffers.symbols, buffers.scratch);
  for (const BpeSymbol& symbol : buffers.symbols) ids.push_back(symbol.id);
}

void BpeModel::AppendBytes(absl::string_view piece, Buffers& buffers) const {
  for (const char byte : piece) {
    // Bytes that the vocabulary lacks are left out, as in the original.
    const TokenId id = bytes_[static_cast<uint8_t>(byte)];
    if (id >= 0) buffers.symbols.push_back({id, 0});
  }
}

void BpeModel::AppendCharacters(absl::string_view piece,
                                Buffers& buffers) const {
  bool after_unknown = false;
  while (!piece.empty()) {
    const Utf8Step step = NextUtf8(piece);
    const absl::string_view character = piece.substr(0, step.length);
    piece.remove_prefix(step.length);
    TokenId id = characters_.Find(step.code_point);
    // LoadBytes has checked that all 256 byte tokens exist, so with
    // byte_fallback no character is unknown.
    if (id < 0 && byte_fallback_) {
      for (const char byte : character) {
        buffers.symbols.push_back({bytes_[static_cast<uint8_t>(byte)], 0});
      }
      continue;
    }
    const bool is_unknown = id < 0;
    if (is_unknown) id = unknown_;
    if (id < 0) continue;  // no unknown token: left out, as in the original
    // fuse_unk: a run of unknown characters is one token.
    if (!is_unknown || !fuse_unknown_ || !after_unknown) {
      buffers.symbols.push_back({id, 0});
    }
    after_unknown = is_unknown;
  }
}

}  // namespace foretoken
