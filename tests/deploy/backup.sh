#!/usr/bin/env bash
# backup.sh BINARIES: the backups of docs/operations.md. A datastore is dumped, its
# tables are lost under a crest that goes on serving it, and restored; a snapshot is
# copied. Exits with 77 without PostgreSQL.
set -euo pipefail
cd "$(dirname "$0")/../.."
for program in psql pg_dump; do
  command -v "$program" >/dev/null ||
    { echo "skipped: no $program here (tools/deps)"; exit 77; }
done
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ||
  { echo "skipped: no PostgreSQL here (tools/deps)"; exit 77; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/foretoken-backup.XXXXXX")
first_port=$((30000 + $$ % 120 * 20 + 5))
export FORETOKEN_BIN=$1 FORETOKEN_RUN=$scratch/run \
  FORETOKEN_FIRST_PORT=$first_port \
  FORETOKEN_FIRST_METRICS_PORT=$((first_port + 10))
source tools/lib/services.sh
finish() {
  stop crest
  stop_postgres
  [ ! -f "$run/postgres.folder" ] || rm -rf "$(<"$run/postgres.folder")"
  rm -rf "$scratch"
}
trap finish EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
sql() { psql -qXAt -v ON_ERROR_STOP=1 "$FORETOKEN_POSTGRES_URL" "$@"; }
crest() { "$bin/foretoken" crest "$@" 2>>"$scratch/crest.log"; }
# serving: the version that crest serves.
serving() {
  python3 -B tests/deploy/ask.py "http://127.0.0.1:$(metrics_port_of crest)/metrics" |
    awk '/^foretoken_crest_version\{/ {print $2}'
}

mkdir -p "$run" "$scratch/corpus"
cp "$(python_library)"/{heapq,bisect,textwrap}.py "$scratch/corpus"
start_part postgres
await_part postgres
build=(build --corpus "$scratch/corpus" --tokenizer "$target" --max-n 3
  --top 2000)
name=python-$vocabulary
crest "${build[@]}" --name "$name" >/dev/null
before=$(crest list)
[ "$before" != "[]" ] || fail "no version was published"

pg_dump --no-owner -t 'foretoken_crest_*' -f "$scratch/dump.sql" \
  "$FORETOKEN_POSTGRES_URL"
start_part crest
await_part crest
version=$(serving)
[ "${version:-0}" != 0 ] || fail "crest serves nothing"
sql -c "DO \$\$ DECLARE t text; BEGIN
  FOR t IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'foretoken_crest_%'
  LOOP EXECUTE 'DROP TABLE ' || t; END LOOP; END \$\$"
[ "$(crest list)" = "[]" ] || fail "the tables are still there"
noticed() { grep -q 'keeps its version' "$run/crest.log"; }
deadline=$((SECONDS + 60))
until noticed; do
  [ "$SECONDS" -lt "$deadline" ] || fail "crest does not look for a new version"
  sleep 0.2
done
answers crest && [ "$(serving)" = "$version" ] ||
  fail "crest does not go on with its version when its tables are lost"
sql -f "$scratch/dump.sql" >/dev/null
[ "$(crest list)" = "$before" ] || fail "restored: $(crest list), want $before"
crest verify "$name" --tokenizer "$target" >/dev/null ||
  fail "the restored datastore is damaged"
stop crest
start_part crest
await_part crest
[ "$(serving)" = "$version" ] || fail "crest serves $(serving), want $version"
crest "${build[@]}" --name "$name" >/dev/null ||
  fail "nothing can be published after a restore"

crest "${build[@]}" --out "$scratch/a.crest" >/dev/null
cp "$scratch/a.crest" "$scratch/b.crest"
crest verify "$scratch/b.crest" --tokenizer "$target" >/dev/null ||
  fail "the copy of a snapshot is damaged"
echo "datastores are dumped, lost and restored; a snapshot is copied"
