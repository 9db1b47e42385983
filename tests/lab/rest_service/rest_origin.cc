#include "tests/lab/rest_service/rest_origin.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/lab/rest/rest_lookup.h"
#include "tests/lab/rest/rest_snapshot.h"
#include "tests/lab/rest/rest_store.h"

namespace foretoken::crest {
namespace {

class RestMemoryStore final : public MemoryStore {
 public:
  explicit RestMemoryStore(RestStore store) : store_(std::move(store)) {}

  int Lookup(absl::Span<const TokenId> context, int max_nodes,
             CrestTree& tree) const override {
    // Callers on several threads share this store, and a RestLookup, which
    // keeps buffers, belongs to one thread.
    thread_local RestLookup lookup;
    return lookup.Find(store_, context, max_nodes, tree);
  }

 private:
  const RestStore store_;
};

}  // namespace

RestOrigin::RestOrigin(std::string path, uint64_t index_memory)
    : FileOrigin(std::move(path), RestMetaBytes()),
      index_memory_(index_memory) {}

absl::StatusOr<VersionInfo> RestOrigin::Decode(
    absl::Span<const uint8_t> header) const {
  FORETOKEN_ASSIGN_OR_RETURN(const RestMeta rest, DecodeRestMeta(header));
  const RestOptions options;
  VersionInfo info;
  info.version = RestSnapshotVersion(rest);
  info.meta.tokenizer_fingerprint = rest.tokenizer_fingerprint;
  info.meta.vocab_size = rest.vocab_size;
  info.meta.min_n = static_cast<uint32_t>(options.min_n);
  info.meta.max_n = static_cast<uint32_t>(options.max_n);
  info.meta.corpus_documents = rest.documents;
  info.meta.corpus_tokens = rest.tokens;
  info.meta.entries = rest.tokens;
  info.meta.record_bytes = rest.file_bytes() - RestMetaBytes();
  return info;
}

absl::StatusOr<std::unique_ptr<ServedVersion>> RestOrigin::Load(
    const VersionInfo& version) {
  const uint64_t bytes =
      RestStore::BytesFor(version.meta.corpus_tokens,
                          static_cast<int32_t>(version.meta.vocab_size));
  if (bytes > index_memory_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path(), ": ", version.meta.corpus_tokens, " tokens take ", bytes,
        " bytes in memory, the limit (--index-memory) is ", index_memory_));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      std::optional<std::string> file,
      ReadUpTo(RestMetaBytes() + version.meta.record_bytes));
  if (!file.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path(), ": longer than its header says"));
  }
  RestMeta meta;
  absl::StatusOr<RestStore> store = DecodeRestSnapshot(*std::move(file), meta);
  if (!store.ok()) return Annotate(store.status(), path());
  if (RestSnapshotVersion(meta) != version.version) return Replaced();
  auto served = std::make_unique<ServedVersion>();
  served->info = version;
  served->other = std::make_unique<const RestMemoryStore>(*std::move(store));
  return served;
}

absl::StatusOr<std::unique_ptr<DatastoreSink>> RestOrigin::NewVersion(
    const CrestMeta&, const TokenTable&) {
  return absl::FailedPreconditionError(absl::StrCat(
      path(), ": a REST snapshot, which `foretoken-lab build-rest` writes"));
}

}  // namespace foretoken::crest
