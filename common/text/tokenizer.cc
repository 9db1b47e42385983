#include "common/text/tokenizer.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_files.h"
#include "common/text/gguf_tokenizer.h"
#include "common/text/hf_tokenizer.h"
#include "common/text/sentencepiece_tokenizer.h"
#include "common/text/tokenizer_config.h"

namespace foretoken {
namespace {

// Maximum size of a tokenizer file; large vocabularies take about 20 MB as
// tokenizer.json.
constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadFile(
    const std::string& path, const TokenizerConfig& config) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string bytes,
                             ReadFile(path, kMaxTokenizerBytes));
  // No SentencePiece model begins with a brace: as a tag it would have the
  // deprecated group type.
  const bool is_json =
      !bytes.empty() && bytes.find_first_not_of(" \t\r\n") == bytes.find('{');
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      is_json ? MakeHfTokenizer(bytes, config)
              : MakeSentencePieceTokenizer(bytes, config);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::LoadShared(
    const std::string& path) {
  // Never destroyed: other static destructors may still load a tokenizer. Weak
  // references let a tokenizer go when its last user does. Loading under the
  // lock makes services of one process that start together load it once.
  static absl::Mutex* const mu = new absl::Mutex;
  static auto* const loaded =
      new std::map<std::string, std::weak_ptr<const Tokenizer>>;
  absl::MutexLock lock(mu);
  std::weak_ptr<const Tokenizer>& known = (*loaded)[path];
  std::shared_ptr<const Tokenizer> tokenizer = known.lock();
  if (tokenizer != nullptr) return tokenizer;
  FORETOKEN_ASSIGN_OR_RETURN(tokenizer, Load(path));
  known = tokenizer;
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(
    const std::string& path) {
  if (IsGgufFile(path)) return LoadGgufTokenizer(path);
  // Another single file comes without settings; its defaults apply.
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return LoadFile(path, TokenizerConfig());
  }
  FORETOKEN_ASSIGN_OR_RETURN(const TokenizerConfig config,
                             ReadModelTokenizerConfig(path));
  for (const char* name :
       {"tokenizer.json", "tokenizer.json.gz", "tokenizer.model"}) {
    const std::string file = absl::StrCat(path, "/", name);
    if (IsFile(file)) return LoadFile(file, config);
  }
  return absl::NotFoundError(absl::StrCat(
      path, ": no tokenizer.json, tokenizer.json.gz or tokenizer.model in it"));
}

Tokenizer::Tokenizer(Parts parts)
    : vocabulary_(std::move(parts.vocabulary)),
      rules_(parts.rules),
      bos_token_(parts.bos_token),
      eos_token_(parts.eos_token),
      prompt_prefix_(std::move(parts.prompt_prefix)),
      prompt_suffix_(std::move(parts.prompt_suffix)),
      chat_template_(std::move(parts.chat_template)),
      fim_tokens_(FindFimTokens(vocabulary_, parts.fim)),
      fingerprint_(vocabulary_.Fingerprint()) {}

std::vector<TokenId> Tokenizer::EncodeSpans(
    absl::Span<const PromptSpan> spans) const {
  return Encode(JoinedSpans(spans).text());
}

std::vector<TokenId> Tokenizer::EncodePrompt(absl::string_view text) const {
  std::vector<TokenId> ids = prompt_prefix_;
  const std::vector<TokenId> body = Encode(text);
  ids.insert(ids.end(), body.begin(), body.end());
  ids.insert(ids.end(), prompt_suffix_.begin(), prompt_suffix_.end());
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(
    absl::Span<const TokenId> ids) const {
  std::string text;
  Detokenizer detokenizer(*this);
  FORETOKEN_RETURN_IF_ERROR(detokenizer.Push(ids, text));
  detokenizer.Flush(text);
  return text;
}

}  // namespace foretoken
