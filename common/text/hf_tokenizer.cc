#include "common/text/hf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe_model.h"
#include "common/text/hf_decoder.h"
#include "common/text/hf_post_processor.h"
#include "common/text/json_fields.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/text_normalizer.h"
#include "common/text/utf8.h"

namespace foretoken {
namespace {

class HfTokenizer : public Tokenizer {
 public:
  // Steps of the library's encoding, in the order of EncodeValid.
  struct Pipeline {
    AddedTokenMatcher raw_tokens;
    AddedTokenMatcher normalized_tokens;
    TextNormalizer normalizer;
    PreTokenizer pre_tokenizer;
    BpeModel model;
  };

  HfTokenizer(Parts parts, Pipeline pipeline)
      : Tokenizer(std::move(parts)), pipeline_(std::move(pipeline)) {}

  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(
      const Json& file, const TokenizerConfig& config);

  std::vector<TokenId> Encode(absl::string_view text) const override;
  std::vector<TokenId> EncodeSpans(
      absl::Span<const PromptSpan> spans) const override;

 private:
  struct Work {
    PreTokenizer::Scratch regex;
    BpeModel::Buffers bpe;
    std::vector<TokenId> ids;
    // The spans whose joined text is being encoded; nullptr: control tokens
    // count everywhere.
    const JoinedSpans* spans = nullptr;
  };

  void EncodeAll(absl::string_view text, Work& work) const;
  // Whether a token may stand at [begin, end) of a part of the joined text.
  static bool MayControl(const AddedToken& token, absl::string_view part,
                         size_t begin, size_t end, const Work& work);

  void EncodeValid(absl::string_view text, bool at_start, Work& work) const;
  void EncodeBetweenTokens(absl::string_view text, bool at_start,
                           Work& work) const;

  const Pipeline pipeline_;
};

// Replaces malformed bytes, for a vocabulary without byte tokens of its own.
std::string ReplaceMalformed(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    out.append(text.data(), valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacementCharacter;
    text.remove_prefix(1);
  }
  return out;
}

std::vector<TokenId> HfTokenizer::Encode(absl::string_view text) const {
  Work work;
  // A vocabulary without byte tokens gets one U+FFFD per malformed byte.
  std::string replaced;
  if (!pipeline_.pre_tokenizer.byte_level() && !IsValidUtf8(text)) {
    replaced = ReplaceMalformed(text);
    text = replaced;
  }
  EncodeAll(text, work);
  return std::move(work.ids);
}

std::vector<TokenId> HfTokenizer::EncodeSpans(
    absl::Span<const PromptSpan> spans) const {
  std::vector<PromptSpan> valid(spans.begin(), spans.end());
  // By span, before they are joined: the offsets of the joined text must be
  // those of what is encoded.
  for (PromptSpan& span : valid) {
    if (!pipeline_.pre_tokenizer.byte_level()) {
      span.text = ReplaceMalformed(span.text);
    }
  }
  const JoinedSpans joined(valid);
  Work work;
  work.spans = &joined;
  EncodeAll(joined.text(), work);
  return std::move(work.ids);
}

void HfTokenizer::EncodeAll(absl::string_view text, Work& work) const {
  // English text has three to four bytes per token.
  work.ids.reserve(text.size() / 3);
  bool at_start = true;
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    EncodeValid(text.substr(0, valid), at_start, work);
    text.remove_prefix(valid);
    if (text.empty()) break;
    // The regular expressions work on characters only; malformed bytes bypass
    // them and are encoded one by one.
    pipeline_.model.Encode(text.substr(0, 1), work.bpe, work.ids);
    text.remove_prefix(1);
    at_start = false;
  }
}

bool HfTokenizer::MayControl(const AddedToken& token, absl::string_view part,
                             size_t begin, size_t end, const Work& work) {
  // A request must not spell a control token: with any byte of the request in
  // it, the text is encoded as plain text.
  if (work.spans == nullptr || !IsControlToken(token.content, token.special)) {
    return true;
  }
  // `part` is a view of the joined text, so that its address gives its offset.
  const size_t offset = part.data() - work.spans->text().data();
  return !work.spans->HasRequest(offset + begin, offset + end);
}

void HfTokenizer::EncodeValid(absl::string_view text, bool at_start,
                              Work& work) const {
  // Order of the library: added tokens in the raw text, normalizer, added
  // tokens in the normalised text, pre-tokenizer, BPE.
  pipeline_.raw_tokens.Split(
      text,
      [&](const AddedToken& token, size_t begin, size_t end) {
        return MayControl(token, text, begin, end, work);
      },
      [&](TokenId id, absl::string_view part) {
        if (id >= 0) {
          work.ids.push_back(id);
        } else {
          // Compared by address: a part that begins where the text does.
          EncodeBetweenTokens(part, at_start && part.data() == text.data(),
                              work);
        }
      });
}

void HfTokenizer::EncodeBetweenTokens(absl::string_view text, bool at_start,
                                      Work& work) const {
  const absl::string_view raw = text;
  std::string normalized;
  if (!pipeline_.normalizer.IsIdentity()) {
    normalized = pipeline_.normalizer.Normalize(text);
    text = normalized;
  }
  std::optional<NormalizedSpans> mapped;  // made for the first control token
  const auto may_control = [&](const AddedToken& token, size_t begin,
                               size_t end) {
    // Not normalised: offsets are those of the raw text.
    if (work.spans == nullptr || text.data() == raw.data()) {
      return MayControl(token, raw, begin, end, work);
    }
    if (!IsControlToken(token.content, token.special)) return true;
    // Normalising may have moved the borders between spans. Mapping them costs
    // a pass over the text: made for the first control token only.
    if (!mapped.has_value()) {
      const size_t offset = raw.data() - work.spans->text().data();
      mapped.emplace(*work.spans, offset, offset + raw.size(), text,
                     [this](absl::string_view part) {
                       return pipeline_.normalizer.Normalize(part);
                     });
    }
    return !mapped->HasRequest(begin, end);
  };
  pipeline_.normalized_tokens.Split(
      text, may_control, [&](TokenId id, absl::string_view part) {
        if (id >= 0) {
          work.ids.push_back(id);
          return;
        }
        pipeline_.pre_tokenizer.Split(
            part, at_start && part.data() == text.data(), work.regex,
            [&](absl::string_view piece) {
              pipeline_.model.Encode(piece, work.bpe, work.ids);
            });
      });
}

// --- loading ----------------------------------------------------------------

// All tokens by text: the model's and the added ones.
using TokenIds = absl::flat_hash_map<std::string, TokenId>;

// Merges both; an added token that the model also has must have the same id.
absl::StatusOr<TokenIds> JoinTokens(const BpeModel& model,
                                    const std::vector<AddedToken>& added) {
  TokenIds ids = model.vocabulary();
  for (size_t i = 0; i < added.size(); ++i) {
    const auto [known, is_new] = ids.emplace(added[i].content, added[i].id);
    if (known->second != added[i].id) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens[", i, "].id: ", added[i].id, ", but \"",
                       added[i].content, "\" is token ", known->second));
    }
  }
  return ids;
}

TokenKind KindOf(absl::string_view content, TokenId id, const BpeModel& model,
                 const HfDecoder& decoder, bool special) {
  if (id == model.unknown()) return TokenKind::kUnknown;
  if (special) return TokenKind::kSpecial;
  if (decoder.byte_fallback && ByteOfPiece(content) >= 0) {
    return TokenKind::kByte;
  }
  return TokenKind::kText;
}

absl::StatusOr<Vocabulary> BuildVocabulary(const TokenIds& ids,
                                           const std::vector<AddedToken>& added,
                                           const BpeModel& model,
                                           const TextNormalizer& normalizer,
                                           const HfDecoder& decoder) {
  absl::flat_hash_map<absl::string_view, const AddedToken*> added_by_content;
  for (const AddedToken& token : added) {
    added_by_content[token.content] = &token;
  }
  // Sorted by id, so that a conflict is always reported for the same token;
  // hash maps have no fixed order.
  std::vector<std::pair<TokenId, absl::string_view>> sorted;
  for (const auto& [content, id] : ids) sorted.emplace_back(id, content);
  std::sort(sorted.begin(), sorted.end());
  Vocabulary vocabulary;
  for (const auto& [id, content] : sorted) {
    const auto entry = added_by_content.find(content);
    const AddedToken* token =
        entry == added_by_content.end() ? nullptr : entry->second;
    const bool special = token != nullptr && token->special;
    const TokenKind kind = KindOf(content, id, model, decoder, special);
    std::string name(content);
    std::string bytes;
    if (kind == TokenKind::kByte) {
      name = bytes = std::string(1, static_cast<char>(ByteOfPiece(content)));
    } else if (!special) {
      // A token that is matched in normalised text is also written in
      // normalised form (tokenizers 0.23).
      bytes = decoder.TokenText(token != nullptr && token->normalized
                                    ? normalizer.Normalize(content)
                                    : name);
      if (kind == TokenKind::kText) name = bytes;
    }
    if (!vocabulary.Add(id, name, bytes, kind)) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab, added_tokens: \"", content, "\" has id ",
                       id, ", which another token has too"));
    }
  }
  return vocabulary;
}

absl::StatusOr<TokenId> ConfiguredToken(
    const TokenIds& ids, const std::optional<std::string>& content,
    const char* field) {
  if (!content.has_value()) return TokenId{-1};
  const auto id = ids.find(*content);
  if (id == ids.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer_config.json: ", field, ": \"", *content,
                     "\" is not in the vocabulary"));
  }
  return id->second;
}

// Overrides the template of tokenizer.json with add_bos_token or add_eos_token
// of tokenizer_config.json.
absl::Status SetPromptTokens(std::optional<bool> asked, TokenId token,
                             std::vector<TokenId>& around, const char* field) {
  if (!asked.has_value()) return absl::OkStatus();
  if (!*asked) {
    around.clear();
  } else if (around.empty()) {
    if (token < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer_config.json: ", field, ": true, but no token is named"));
    }
    around = {token};
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> HfTokenizer::Create(
    const Json& file, const TokenizerConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json normalizer,
                             Member(file, "file", "normalizer"));
  FORETOKEN_ASSIGN_OR_RETURN(const Json pre_tokenizer,
                             Member(file, "file", "pre_tokenizer"));
  FORETOKEN_ASSIGN_OR_RETURN(const Json decoder_field,
                             Member(file, "file", "decoder"));
  FORETOKEN_ASSIGN_OR_RETURN(const Json post_processor,
                             Member(file, "file", "post_processor"));
  FORETOKEN_ASSIGN_OR_RETURN(const Json added_field,
                             Member(file, "file", "added_tokens"));
  const auto model_field = file.find("model");
  if (model_field == file.end()) {
    return absl::InvalidArgumentError("model: missing; not a tokenizer.json");
  }

  FORETOKEN_ASSIGN_OR_RETURN(TextNormalizer text_normalizer,
                             TextNormalizer::Create(normalizer));
  FORETOKEN_ASSIGN_OR_RETURN(PreTokenizer pre,
                             PreTokenizer::Create(pre_tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(BpeModel model,
                             BpeModel::Create(*model_field, pre.byte_level()));
  FORETOKEN_ASSIGN_OR_RETURN(const HfDecoder decoder,
                             HfDecoder::Create(decoder_field));
  // Encoding and decoding must agree on the alphabet of the vocabulary.
  if (decoder.byte_level != pre.byte_level()) {
    return BadField("decoder.type", decoder_field.at("type"),
                    "ByteLevel as decoder and as pre_tokenizer, or as neither");
  }
  if (model.byte_fallback() && !decoder.byte_fallback) {
    return BadField("decoder.type", decoder_field.at("type"),
                    "ByteFallback for a model with byte_fallback");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<AddedToken> added,
                             ParseAddedTokens(added_field));
  FORETOKEN_ASSIGN_OR_RETURN(const TokenIds ids, JoinTokens(model, added));

  Parts parts;
  FORETOKEN_ASSIGN_OR_RETURN(
      parts.vocabulary,
      BuildVocabulary(ids, added, model, text_normalizer, decoder));
  parts.rules = decoder.rules;
  FORETOKEN_RETURN_IF_ERROR(
      ParsePostProcessor(post_processor, parts.vocabulary.size(),
                         parts.prompt_prefix, parts.prompt_suffix));
  FORETOKEN_ASSIGN_OR_RETURN(
      parts.bos_token, ConfiguredToken(ids, config.bos_token, "bos_token"));
  FORETOKEN_ASSIGN_OR_RETURN(
      parts.eos_token, ConfiguredToken(ids, config.eos_token, "eos_token"));
  // Without tokenizer_config.json, a single template token in front is BOS.
  if (parts.bos_token < 0 && parts.prompt_prefix.size() == 1) {
    parts.bos_token = parts.prompt_prefix[0];
  }
  FORETOKEN_RETURN_IF_ERROR(
      SetPromptTokens(config.add_bos_token, parts.bos_token,
                      parts.prompt_prefix, "add_bos_token"));
  FORETOKEN_RETURN_IF_ERROR(
      SetPromptTokens(config.add_eos_token, parts.eos_token,
                      parts.prompt_suffix, "add_eos_token"));

  parts.chat_template = config.chat_template.value_or("");
  parts.fim = config.fim;

  Pipeline pipeline{
      {}, {}, std::move(text_normalizer), std::move(pre), std::move(model)};
  // Tokens of the normalised text are matched in normalised form.
  for (const AddedToken& token : added) {
    if (token.normalized) {
      pipeline.normalized_tokens.Add(
          token, pipeline.normalizer.Normalize(token.content));
    } else {
      pipeline.raw_tokens.Add(token, token.content);
    }
  }
  return std::make_unique<HfTokenizer>(std::move(parts), std::move(pipeline));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeHfTokenizerFromJson(
    const Json& file, const TokenizerConfig& config) {
  return HfTokenizer::Create(file, config);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeHfTokenizer(
    absl::string_view bytes, const TokenizerConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json file, ParseJson(bytes));
  return HfTokenizer::Create(file, config);
}

}  // namespace foretoken
