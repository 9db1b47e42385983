#include "common/text/hf_decoder.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/byte_level.h"
#include "common/text/json_fields.h"
#include "common/text/utf8.h"

namespace foretoken {
namespace {

using LeadingSpace = DecodeRules::LeadingSpace;
using Malformed = DecodeRules::Malformed;

// The library's Metaspace decoder drops every replacement character of the
// first token, unless none is ever prepended.
absl::StatusOr<HfDecoder> MetaspaceDecoder(const Json& field) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json replacement,
                             Member(field, "decoder", "replacement"));
  if (replacement != kSpaceSymbol) {
    return BadField("decoder.replacement", replacement, "\"\u2581\"");
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const bool add_prefix_space,
      BoolMember(field, "decoder", "add_prefix_space", true));
  FORETOKEN_ASSIGN_OR_RETURN(const Json scheme,
                             Member(field, "decoder", "prepend_scheme"));
  // add_prefix_space is the older spelling of prepend_scheme.
  const bool never =
      scheme == "never" || (scheme.is_null() && !add_prefix_space);
  HfDecoder decoder;
  decoder.rules = {
      Malformed::kMaximalSubpart,
      never ? LeadingSpace::kKeep : LeadingSpace::kStripAllOfFirstToken};
  return decoder;
}

absl::StatusOr<HfDecoder> SequenceDecoder(const Json& field) {
  // The decoder that converters of Llama's SentencePiece models write, the only
  // Sequence that is supported; the last step, Strip, is optional.
  const Json wanted = {
      {{"type", "Replace"},
       {"pattern", {{"String", kSpaceSymbol}}},
       {"content", " "}},
      {{"type", "ByteFallback"}},
      {{"type", "Fuse"}},
      {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}},
  };
  FORETOKEN_ASSIGN_OR_RETURN(const Json parts,
                             Member(field, "decoder", "decoders"));
  if (!parts.is_array() || parts.size() < 3 || parts.size() > wanted.size()) {
    return BadField("decoder.decoders", parts,
                    "Replace, ByteFallback, Fuse and perhaps Strip");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != wanted[i]) {
      return BadField(absl::StrCat("decoder.decoders[", i, "]"), parts[i],
                      DumpJson(wanted[i]));
    }
  }
  HfDecoder decoder;
  decoder.byte_fallback = true;
  decoder.rules = {Malformed::kByteTokenRun, parts.size() == wanted.size()
                                                 ? LeadingSpace::kStripFromText
                                                 : LeadingSpace::kKeep};
  return decoder;
}

}  // namespace

absl::StatusOr<HfDecoder> HfDecoder::Create(const Json& field) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string type,
                             StringMember(field, "decoder", "type"));
  if (type == "Metaspace") return MetaspaceDecoder(field);
  if (type == "Sequence") return SequenceDecoder(field);
  if (type != "ByteLevel") {
    return BadField("decoder.type", type,
                    "ByteLevel, Metaspace or Sequence; others are not "
                    "supported");
  }
  HfDecoder decoder;
  decoder.byte_level = true;
  decoder.rules = {Malformed::kMaximalSubpart, LeadingSpace::kKeep};
  return decoder;
}

std::string HfDecoder::TokenText(absl::string_view token) const {
  if (!byte_level) return SpaceSymbolsToSpaces(token);
  // A token with a character outside the alphabet is used verbatim.
  std::optional<std::string> bytes = DecodeByteLevel(token);
  return bytes.has_value() ? *std::move(bytes) : std::string(token);
}

}  // namespace foretoken
