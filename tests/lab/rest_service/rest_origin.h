// A datastore of the crest service that is one REST snapshot file
// (rest_snapshot.h): the tree of a look-up is made from the matches in its
// text, as RestDrafter makes it. Its VersionInfo has the tokenizer, vocabulary,
// corpus and lengths of a match; `entries` counts tokens, each of which may
// begin a continuation.
#ifndef FORETOKEN_TESTS_LAB_REST_SERVICE_REST_ORIGIN_H_
#define FORETOKEN_TESTS_LAB_REST_SERVICE_REST_ORIGIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "services/crest/core/file_origin.h"

namespace foretoken::crest {

class RestOrigin final : public FileOrigin {
 public:
  // A file whose store would take more than `index_memory` bytes is refused:
  // there is no serving it from the disk. Loading takes about 13 bytes per
  // token beside that.
  RestOrigin(std::string path, uint64_t index_memory);

  // ResourceExhausted names the limit.
  absl::StatusOr<std::unique_ptr<ServedVersion>> Load(
      const VersionInfo& version) override;
  // FailedPrecondition: its files are of another format.
  absl::StatusOr<std::unique_ptr<DatastoreSink>> NewVersion(
      const CrestMeta& meta, const TokenTable& table) override;

 private:
  absl::StatusOr<VersionInfo> Decode(
      absl::Span<const uint8_t> header) const override;

  const uint64_t index_memory_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_TESTS_LAB_REST_SERVICE_REST_ORIGIN_H_
