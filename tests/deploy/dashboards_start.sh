#!/usr/bin/env bash
# dashboards_start.sh: tools/lib/dashboards.sh without services: Prometheus and the page
# start, answer only whom they should, and stop; another program on one of their ports
# is not taken for them. Exits with 77 without Prometheus.
set -euo pipefail
cd -P "$(dirname "$0")/../.."
command -v prometheus >/dev/null ||
  { echo "skipped: no prometheus here (tools/deps --deploy)"; exit 77; }

# Characters that YAML and Prometheus' patterns know.
scratch=$(realpath "$(mktemp -d)")
ports=$(tests/e2e/free_ports.py 2)
export FORETOKEN_RUN="$scratch/it's [a] run" FORETOKEN_PROMETHEUS_PORT=$ports
export FORETOKEN_DASHBOARDS_PORT=$((ports + 1)) FORETOKEN_SCRAPE_INTERVAL=1
source tools/lib/services.sh
source tools/lib/dashboards.sh
holder=
finish() {
  [ -z "$holder" ] || kill "$holder" 2>/dev/null || true
  stop_dashboards
  rm -rf "$scratch"
}
trap finish EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
mkdir "$run"

# hold MANNER PORT, release: another program on a port.
hold() {
  rm -f "$scratch/holder"
  python3 -B tests/e2e/port_holder.py "$@" >"$scratch/holder" 2>&1 &
  holder=$!
  until grep -qs ready "$scratch/holder"; do sleep 0.05; done
}
release() {
  kill "$holder"
  wait "$holder" || true
  holder=
}
for manner in fine silent; do
  for part in prometheus dashboards; do
    case $part in
      prometheus) port=$prometheus_port ;;
      dashboards) port=$dashboards_port ;;
    esac
    hold "$manner" "$port"
    ! said=$(start_dashboards 2>&1) || fail "$part: another program passes for it"
    [[ $said == *"$part does not serve on port $port"* ]] || fail "$part: $said"
    [[ $said == *"address already in use"* || $said == *"Address already in use"* ]] ||
      fail "$part: no reason: $said"
    release
    stop_dashboards
  done
done

# A second call finds both running.
for _ in 1 2; do said=$(start_dashboards 2>&1) || fail "$said"; done
[[ $said == *"http://127.0.0.1:$dashboards_port/"* ]] || fail "says: $said"
pids="$(pid_of prometheus) $(pid_of dashboards)"

# Prometheus wants its password, whatever Host a browser was led to; its file is the
# owner's alone. The page has it.
[ "$(stat -c %a "$run/prometheus.password")" = 600 ] || fail "the password can be read"
python3 - "$prometheus_port" "$dashboards_port" "$run/prometheus.password" <<'PYTHON'
import base64, http.client, json, sys
prometheus, page = map(int, sys.argv[1:3])
def get(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()
with open(sys.argv[3], encoding="ascii") as file:
    password = file.read().strip()
def basic(text):
    return "Basic " + base64.b64encode(f"foretoken:{text}".encode()).decode()
query = "/api/v1/query?query=up"
assert get(prometheus, query)[0] == 401
assert get(prometheus, query, Host="example.org")[0] == 401
assert get(prometheus, query, Authorization=basic(password + "x"))[0] == 401
status, headers, body = get(prometheus, query, Authorization=basic(password),
                            Origin="http://example.org")
assert status == 200 and json.loads(body)["status"] == "success", (status, body)
assert headers["Access-Control-Allow-Origin"] is None, headers.items()
rules = json.loads(get(prometheus, "/api/v1/rules", Authorization=basic(password))[2])
assert rules["data"]["groups"], "no rules"
status, _, body = get(page, "/api/dashboards/foretoken/state")
assert status == 200, (status, body)
PYTHON
! tr '\0' ' ' </proc/"${pids% *}"/cmdline | grep -qF "$(<"$run/prometheus.password")" ||
  fail "the password is among the arguments"

stop_dashboards
for pid in $pids; do
  # Not kill -0, which takes a zombie of this shell for a process.
  [ -z "$(readlink "/proc/$pid/exe")" ] || fail "stop_dashboards leaves a process"
done
echo "PASSED"
