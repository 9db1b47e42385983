#!/usr/bin/env bash
# terminate.sh BINARIES: SIGTERM ends every service within its drain timeout plus
# two seconds, with exit status 0, while it is being worked and attacked, and the
# orchestrator also while its neighbours hang. Prints the times; a machine that is
# busy otherwise gets half a minute more before the test fails. Exits with 77
# without PostgreSQL, Redis or curl.
#
#   --strict   no half minute
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v curl >/dev/null; then
  echo "SKIPPED: curl is not installed (tools/deps)"
  exit 77
fi
source tests/e2e/service_set.sh "${1:-}"
drain=3
most=$((drain + 2))
[ "${2:-}" = --strict ] || most=$((most + 30))
export FORETOKEN_DRAIN_TIMEOUT=${drain}s

workers=()
stop_workers() {
  local worker
  for worker in "${workers[@]}"; do
    kill "$worker" $(pgrep -P "$worker") 2>/dev/null || true
  done
  workers=()
}
finish() {
  stop_workers
  finish_set
}
trap finish EXIT

# Everything that a client may ask for, from many at once, until it is killed.
work() {
  while true; do
    "$bin/foretoken-soak" --server "$(address_of orchestrator)" \
      --requests 1000 --max-tokens 200 \
      --text "$scratch/corpus/heapq.py" >/dev/null 2>&1 || sleep 0.1
  done &
  workers+=($!)
  while true; do
    for body in "${bodies[@]}"; do
      curl -s -m 30 -H 'Content-Type: application/json' --data-binary "@$body" \
        "http://$(address_of gateway)/v1/chat/completions" >/dev/null || true &
    done
    wait
    sleep 0.1
  done &
  workers+=($!)
}

# Waits until requests run in both doors.
await_work() {
  local door name
  for door in orchestrator:foretoken_requests_running \
    gateway:foretoken_http_requests_running; do
    name=${door#*:}
    for _ in $(seq 300); do
      ! curl -s "http://127.0.0.1:$(metrics_port_of "${door%:*}")/metrics" |
        grep "^$name [1-9]" >/dev/null || continue 2
      sleep 0.1
    done
    fail "$name stays 0"
  done
}

# attack PART: hostile clients of all kinds, until it is killed.
attack() {
  "$bin/foretoken-attack" --only-attacks --seconds 60s --scale 16 \
    --server "$(address_of "$1")" \
    --metrics "127.0.0.1:$(metrics_port_of "$1")" >/dev/null 2>&1 &
  workers+=($!)
}

# Bodies that take long to read, to render and to generate.
python3 -B - "$scratch" <<'END'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
chat = [{"role": "user", "content": "word " * 3000}]
bodies = {
    "wide": '{"messages": [' + "{}," * 1_000_000 + "{}]}",
    "deep": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "long": json.dumps({"messages": [
        {"role": "user", "content": "a b " * 1_000_000}]}),
    "many": json.dumps({"messages": chat * 200}),
    "names": json.dumps({"messages": chat, "max_tokens": 100,
                         "chat_template_kwargs":
                         {f"name{i}": i for i in range(40_000)}}),
}
short = [{"role": "user", "content": "word " * 50}]
for i in range(8):
    bodies[f"stream{i}"] = json.dumps(
        {"messages": short, "max_tokens": 800, "stream": True,
         "ignore_eos": True, "temperature": 1, "seed": i})

for name, body in bodies.items():
    (folder / f"{name}.json").write_text(body)
END
bodies=("$scratch"/*.json)

neighbours=(verifier draft-worker trie-drafter crest)
for each in gateway orchestrator orchestrator-alone "${neighbours[@]}"; do
  part=${each%-alone}
  start_all
  start_service gateway
  await_part gateway
  pid=$(pid_of "$part")
  work
  [ "$part" = gateway ] || attack "$part"
  sleep 2
  [ "$(pid_of "$part")" = "$pid" ] || fail "$part is gone before SIGTERM"
  await_work
  if [ "$each" != "$part" ]; then
    for neighbour in "${neighbours[@]}"; do
      kill -STOP "$(pid_of "$neighbour")"
    done
    # A probe waits for them now.
    sleep 2.5
  fi
  begin=${EPOCHREALTIME/./}
  kill "$pid"
  while is_part "$part" "$pid" &&
    [ $((${EPOCHREALTIME/./} - begin)) -le $((most * 1000000)) ]; do
    sleep 0.01
  done
  took=$((${EPOCHREALTIME/./} - begin))
  stop_workers
  if [ "$each" != "$part" ]; then
    for neighbour in "${neighbours[@]}"; do
      kill -CONT "$(pid_of "$neighbour")"
    done
  fi
  printf '%-18s %d.%03d s after SIGTERM (drain timeout %d s)\n' "$each" \
    $((took / 1000000)) $((took / 1000 % 1000)) "$drain"
  ! is_part "$part" "$pid" || fail "$part runs on after $most s"
  status=0
  wait "$pid" || status=$?
  [ "$status" = 0 ] || fail "$part ended with status $status"
done
echo "PASSED"
