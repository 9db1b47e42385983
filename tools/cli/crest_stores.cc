#include "tools/cli/crest_stores.h"

#include <unistd.h>

#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/drafting/corpus_reader.h"

namespace foretoken::cli {

bool IsSnapshotPath(const std::string& file_or_name) {
  return file_or_name.find_first_of("/.") != std::string::npos ||
         access(file_or_name.c_str(), F_OK) == 0;
}

absl::StatusOr<std::shared_ptr<CrestSource>> OpenCrestSource(
    const std::string& file_or_name, const Tokenizer* tokenizer) {
  FORETOKEN_ASSIGN_OR_RETURN(CrestIndex index, CrestIndex::Open(file_or_name));
  if (tokenizer != nullptr) {
    const absl::Status status =
        CheckTokenizer(index.meta(), tokenizer->fingerprint());
    if (!status.ok()) return Annotate(status, file_or_name);
  }
  return std::make_shared<CrestIndexSource>(std::move(index));
}

absl::StatusOr<CrestMeta> ReadMeta(const std::string& file_or_name) {
  FORETOKEN_ASSIGN_OR_RETURN(const MappedFile file,
                             MappedFile::Open(file_or_name));
  absl::StatusOr<CrestMeta> meta = DecodeMeta(file.bytes());
  if (!meta.ok()) return Annotate(meta.status(), file_or_name);
  return meta;
}

absl::StatusOr<std::unique_ptr<DatastoreSink>> OpenSink(
    const std::string& out, const std::string&, const CrestMeta& meta,
    const TokenTable& table) {
  return SnapshotWriter::Create(out, meta, table);
}

absl::StatusOr<std::shared_ptr<const RestStore>> BuildRestStore(
    const std::vector<std::string>& paths,
    const std::vector<std::string>& exclude_id_files,
    const Tokenizer& tokenizer) {
  CorpusOptions options;
  options.paths = paths;
  options.exclude_id_files = exclude_id_files;
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusReader> corpus,
                             CorpusReader::Open(std::move(options)));
  Progress progress("read REST corpus", corpus->total_bytes(), "B",
                    isatty(STDERR_FILENO) != 0);
  std::vector<TokenId> tokens;
  CorpusDocument document;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, corpus->Next(document));
    if (!more) break;
    const std::vector<TokenId> ids = tokenizer.Encode(document.text);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    if (tokenizer.eos_token() >= 0) tokens.push_back(tokenizer.eos_token());
    progress.Set(corpus->done_bytes());
  }
  FORETOKEN_ASSIGN_OR_RETURN(RestStore store,
                             RestStore::Create(tokens, tokenizer.vocab_size()));
  return std::make_shared<const RestStore>(std::move(store));
}

absl::StatusOr<uint64_t> ParseBytes(const std::string& text) {
  static constexpr struct {
    const char* suffix;
    uint64_t factor;
  } kUnits[] = {{"KiB", uint64_t{1} << 10},
                {"MiB", uint64_t{1} << 20},
                {"GiB", uint64_t{1} << 30},
                {"TiB", uint64_t{1} << 40}};
  absl::string_view digits = text;
  uint64_t factor = 1;
  for (const auto& unit : kUnits) {
    if (absl::ConsumeSuffix(&digits, unit.suffix)) factor = unit.factor;
  }
  uint64_t value = 0;
  if (!absl::SimpleAtoi(digits, &value) ||
      value > std::numeric_limits<uint64_t>::max() / factor) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\": want bytes, as 512MiB or 1000000"));
  }
  return value * factor;
}

}  // namespace foretoken::cli
