# service_set.sh BINARIES: a set of services (tools/lib/services.sh) of this test's
# own, with free ports and a small corpus. Sourced from the project's root; leaves
# with status 77 without PostgreSQL or Redis. `finish_set` stops and removes it.
if ! command -v redis-server >/dev/null ||
  ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
  echo "SKIPPED: PostgreSQL or Redis is not installed (tools/deps)"
  exit 77
fi
scratch=$(realpath "$(mktemp -d)")
mkdir "$scratch/corpus"
cp "$(ls -d /usr/lib/python3.*/ | sort -V | tail -1)"/{heapq,bisect,textwrap}.py \
  "$scratch/corpus"
export FORETOKEN_BIN=${1:?want the folder of the binaries} FORETOKEN_RUN=$scratch/run FORETOKEN_CORPUS=$scratch/corpus
# Five of the services, one of the gateway, and six of metrics.
first=$(tests/e2e/free_ports.py 12)
export FORETOKEN_FIRST_PORT=$first FORETOKEN_HTTP_PORT=$((first + 5))
export FORETOKEN_FIRST_METRICS_PORT=$((first + 6))
source tools/lib/services.sh

finish_set() {
  stop_all
  [ ! -f "$run/postgres.folder" ] || rm -rf "$(<"$run/postgres.folder")"
  rm -rf "$scratch"
}
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
