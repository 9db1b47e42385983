// The decoder of a tokenizer.json, as rules for the detokenizer.
#ifndef FORETOKEN_COMMON_TEXT_HF_DECODER_H_
#define FORETOKEN_COMMON_TEXT_HF_DECODER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/text/detokenizer.h"

namespace foretoken {

struct HfDecoder {
  DecodeRules rules;
  bool byte_level = false;     // tokens are written in the byte-level alphabet
  bool byte_fallback = false;  // <0x0A> is a byte

  // `field`: the value of "decoder". InvalidArgument names the unsupported
  // part. Supported: ByteLevel; Metaspace; and the sequence Replace (U+2581 to
  // space), ByteFallback, Fuse, optionally followed by Strip (one space from
  // the left).
  static absl::StatusOr<HfDecoder> Create(const Json& field);

  // The text that a token contributes in the middle of a text.
  std::string TokenText(absl::string_view token) const;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_HF_DECODER_H_
