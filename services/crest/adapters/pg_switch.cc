#include "services/crest/adapters/pg_switch.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {
namespace {

// The lock that PgPublisher::Begin takes for a name.
constexpr char kLockName[] =
    "SELECT pg_try_advisory_xact_lock(1668445044, hashtext($1))";

absl::Status Run(PgConnection& connection, const char* what, const char* sql) {
  return connection.Exec(what, sql).status();
}

absl::Status NoSuchVersion(const std::string& name, int64_t version) {
  return absl::NotFoundError(
      absl::StrCat("datastore \"", name, "\": no version ", version));
}

// Between BEGIN and COMMIT.
absl::StatusOr<int64_t> SwitchInside(PgConnection& connection,
                                     const std::string& name, int64_t version) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult lock,
      connection.Exec("lock name", kLockName, {PgParam::Text(name)}));
  if (!lock.Bool(0, 0)) {
    return absl::AbortedError(absl::StrCat(
        "datastore \"", name, "\": a build is publishing it right now"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult schema,
      connection.Exec("find schema",
                      "SELECT to_regclass('foretoken_crest_versions') "
                      "IS NOT NULL"));
  if (!schema.Bool(0, 0)) return NoSuchVersion(name, version);
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult old,
      connection.Exec("retire version",
                      "UPDATE foretoken_crest_versions SET current = false "
                      "WHERE name = $1 AND current RETURNING version",
                      {PgParam::Text(name)}));
  FORETOKEN_ASSIGN_OR_RETURN(
      const PgResult now,
      connection.Exec("switch version",
                      "UPDATE foretoken_crest_versions SET current = true "
                      "WHERE name = $1 AND version = $2 RETURNING version",
                      {PgParam::Text(name), PgParam::Int8(version)}));
  if (now.rows() != 1) return NoSuchVersion(name, version);
  FORETOKEN_RETURN_IF_ERROR(Run(connection, "commit", "COMMIT"));
  return old.rows() == 1 ? old.Int8(0, 0) : 0;
}

}  // namespace

absl::StatusOr<int64_t> SwitchVersion(PgConnection& connection,
                                      const std::string& name,
                                      int64_t version) {
  FORETOKEN_RETURN_IF_ERROR(Run(connection, "begin", "BEGIN"));
  absl::StatusOr<int64_t> previous = SwitchInside(connection, name, version);
  if (!previous.ok()) {
    // The lock would outlive a connection that is merely closed, for a moment;
    // where this fails too, the server ends the transaction with it.
    Run(connection, "rollback", "ROLLBACK").IgnoreError();
  }
  return previous;
}

}  // namespace foretoken::crest
