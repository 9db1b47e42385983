// Any bytes as text for real tokenizers of every kind: byte-level tokens write
// exactly the text, and the text of the ids, however they are cut, is the same.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"

namespace {

using foretoken::TokenId;
using foretoken::Tokenizer;

std::vector<std::unique_ptr<Tokenizer>> LoadAll() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  // The first is byte-level and changes nothing of a text.
  for (const char* name :
       {"deepseek3.json.gz", "llama3.json.gz", "qwen2.json.gz",
        "llama2_json.json.gz", "metaspace_first.json.gz", "sp_bytes.model",
        "sp_rules.model"}) {
    auto tokenizer = Tokenizer::Load(
        std::string(FORETOKEN_SOURCE_DIR "/tests/golden/tokenizers/") + name);
    FORETOKEN_CHECK(tokenizer.ok());
    tokenizers.push_back(*std::move(tokenizer));
  }
  return tokenizers;
}

// One token at a time; every piece of text is UTF-8.
std::string DecodeInPieces(const Tokenizer& tokenizer,
                           const std::vector<TokenId>& ids) {
  foretoken::Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId id : ids) {
    FORETOKEN_CHECK(detokenizer.Push(id, text).ok());
    FORETOKEN_CHECK(foretoken::IsValidUtf8(text));
  }
  detokenizer.Flush(text);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& tokenizers =
      *new std::vector<std::unique_ptr<Tokenizer>>(LoadAll());
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : tokenizers) {
    const std::vector<TokenId> ids = tokenizer->Encode(text);
    FORETOKEN_CHECK(*tokenizer->Decode(ids) == DecodeInPieces(*tokenizer, ids));
    // The bytes as ids, so that characters break everywhere.
    const std::vector<TokenId> raw(data, data + size);
    FORETOKEN_CHECK(*tokenizer->Decode(raw) == DecodeInPieces(*tokenizer, raw));
  }
  std::string bytes;
  bool special = false;
  for (const TokenId id : tokenizers[0]->Encode(text)) {
    special = special || tokenizers[0]->IsSpecial(id);
    bytes += std::string(tokenizers[0]->TokenBytes(id));
  }
  // Special tokens write nothing, and <tool> and <mid> take spaces with them.
  const bool exact = !special && bytes.find("<tool>") == std::string::npos &&
                     bytes.find("<mid>") == std::string::npos;
  FORETOKEN_CHECK(!exact || bytes == text);
  return 0;
}
