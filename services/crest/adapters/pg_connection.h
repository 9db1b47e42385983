// One PostgreSQL connection: statements with deadlines, errors as Status.
//
// Results are in binary format. libpq itself is used, rather than libpqxx, for
// binary COPY both ways and for waits that end at a deadline.
//
// Codes: Unavailable (no server, connection lost), DeadlineExceeded,
// ResourceExhausted (disk or memory of the server full), FailedPrecondition
// (read-only server, missing table), PermissionDenied, Aborted (lock not
// granted), Internal; the message names the statement. After Unavailable or
// DeadlineExceeded the connection is broken: every call fails until Reopen.
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_CREST_ADAPTERS_PG_CONNECTION_H_
#define FORETOKEN_SERVICES_CREST_ADAPTERS_PG_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;

namespace foretoken::crest {

class PgResult {
 public:
  explicit PgResult(PGresult* result);

  int rows() const;
  // Valid as long as the result.
  absl::string_view Bytes(int row, int column) const;
  int64_t Int8(int row, int column) const;
  bool Bool(int row, int column) const { return Bytes(row, column) == "\x01"; }

 private:
  std::shared_ptr<PGresult> result_;
};

// A parameter in binary format, with its type's oid.
struct PgParam {
  uint32_t type;
  std::string bytes;
  static PgParam Text(absl::string_view text);
  static PgParam Int8(int64_t value);
  static PgParam Bytea(absl::string_view bytes);
  static PgParam Int8Array(const std::vector<int64_t>& values);
};

class PgConnection {
 public:
  // `url`: a libpq connection string or URL; it may hold a password and is
  // never part of a message. `timeout`, any duration, limits connecting and
  // then each statement; host name resolution is not included.
  static absl::StatusOr<std::unique_ptr<PgConnection>> Open(
      const std::string& url, absl::Duration timeout);
  ~PgConnection();
  PgConnection(const PgConnection&) = delete;
  PgConnection& operator=(const PgConnection&) = delete;

  // Connects again, as Open did; prepared statements are lost. On an error the
  // connection stays broken.
  absl::Status Reopen();

  // `what` names the statement in errors: "list versions".
  absl::StatusOr<PgResult> Exec(const std::string& what, const std::string& sql,
                                const std::vector<PgParam>& params = {});
  // As Exec, for a statement without a result.
  absl::Status Run(const std::string& what, const std::string& sql,
                   const std::vector<PgParam>& params = {}) {
    return Exec(what, sql, params).status();
  }
  // Runs `body` between BEGIN and COMMIT; rolls back if it fails.
  absl::Status InTransaction(absl::FunctionRef<absl::Status()> body);
  void RollBack();
  // Limits lock waits for the rest of the transaction; a statement that waits
  // longer returns Aborted.
  absl::Status LimitLockWaits(absl::Duration timeout);

  absl::Status Prepare(const std::string& name, const std::string& sql);
  absl::StatusOr<PgResult> ExecPrepared(const std::string& name,
                                        const std::vector<PgParam>& params);

  // COPY ... FROM STDIN, binary: begin, rows, end.
  absl::Status BeginCopyIn(const std::string& what, const std::string& sql);
  absl::Status PutCopyData(absl::string_view bytes);
  absl::Status EndCopyIn();

  // COPY ... TO STDOUT, binary: calls take(row) with the raw fields of each
  // tuple of one column.
  absl::Status CopyOut(const std::string& what, const std::string& sql,
                       absl::FunctionRef<absl::Status(absl::string_view)> take);

  // Timeout of one statement; during COPY, of each wait for the server.
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }
  bool broken() const { return broken_; }

 private:
  PgConnection(std::string url, absl::Duration timeout)
      : url_(std::move(url)), timeout_(timeout) {}

  absl::Status Connect();
  // `events`: poll(2) events.
  absl::Status Wait(int16_t events, absl::Time deadline,
                    const std::string& what);
  absl::Status Flush(absl::Time deadline, const std::string& what);
  // Waits for the statement that was sent and returns its last result.
  absl::StatusOr<PgResult> Collect(const std::string& what);
  absl::Status Lost(const std::string& what);
  absl::Status ErrorOf(const std::string& what, const PGresult* result);

  const std::string url_;
  PGconn* connection_ = nullptr;
  absl::Duration timeout_;
  std::string copy_what_;
  bool broken_ = false;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_ADAPTERS_PG_CONNECTION_H_
