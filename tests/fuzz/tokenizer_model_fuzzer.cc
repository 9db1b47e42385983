// Any bytes as tokenizer.model: an error or a tokenizer whose ids are all in
// its vocabulary and whose text is UTF-8.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "common/text/sentencepiece_tokenizer.h"
#include "common/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = foretoken::MakeSentencePieceTokenizer(bytes, {});
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->EncodePrompt(bytes.substr(0, 200));
  const auto text = (*tokenizer)->Decode(ids);
  FORETOKEN_CHECK(text.ok() && foretoken::IsValidUtf8(*text));
  return 0;
}
