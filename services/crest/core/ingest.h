// Builds a datastore from text that arrives document by document.
//
// The documents are kept in a private folder, deleted with the object;
// crest_builder.h does the build. Owned by one thread.
#ifndef FORETOKEN_SERVICES_CREST_CORE_INGEST_H_
#define FORETOKEN_SERVICES_CREST_CORE_INGEST_H_

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/tokenizer.h"
#include "services/crest/core/version_origin.h"

namespace foretoken::crest {

struct IngestLimits {
  std::string folder;  // where private folders are made; empty: the system's
  int64_t documents = 100'000;
  int64_t bytes = int64_t{64} << 20;  // of all documents
  int64_t document_bytes = int64_t{1} << 20;
  int64_t memory_bytes = int64_t{256}
                         << 20;  // of the build, beside served data
  int32_t threads = 1;
};

struct IngestResult {
  int64_t version = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
};

class Ingest {
 public:
  // `max_n`, `top`: 0 means the builder's default. InvalidArgument if out of
  // range, Unavailable if no folder can be created.
  static absl::StatusOr<std::unique_ptr<Ingest>> Begin(
      const IngestLimits& limits, int32_t max_n, int32_t top);
  ~Ingest();
  Ingest(const Ingest&) = delete;
  Ingest& operator=(const Ingest&) = delete;

  // ResourceExhausted names the limit exceeded; empty documents are skipped.
  absl::Status Add(absl::string_view document);

  // Builds and publishes to `origin`. Checks `cancelled` between records and
  // before publishing; Cancelled leaves nothing behind.
  absl::StatusOr<IngestResult> Finish(const Tokenizer& tokenizer,
                                      VersionOrigin& origin,
                                      const std::function<bool()>& cancelled);

 private:
  Ingest(const IngestLimits& limits, std::string folder);
  std::string File(const char* name) const { return folder_ + "/" + name; }

  const IngestLimits limits_;
  const std::string folder_;
  int32_t max_n_ = 0;
  int32_t top_ = 0;
  std::ofstream corpus_;
  int64_t documents_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_INGEST_H_
