#!/usr/bin/env bash
# tls.sh FOLDER_OF_BINARIES: the HTTP API over HTTPS, by the gateway as a service and by
# foretoken-local: curl's stream, and many streams of which half are left early.
#
# Exit status 77: curl or openssl is not installed.
set -euo pipefail
bin=$(realpath "$1")
cd "$(dirname "$0")/../../.."
for program in curl openssl; do
  command -v "$program" >/dev/null || { echo "skipped: no $program"; exit 77; }
done

scratch=$(mktemp -d)
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" || true; done
  rm -rf "$scratch"
}
trap stop EXIT
fail() { echo "FAILED: $*" >&2; tail "$scratch"/*.log >&2; exit 1; }

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
  -subj /CN=test -addext subjectAltName=DNS:localhost -keyout "$scratch/key" \
  -out "$scratch/cert" 2>/dev/null
metrics_port=$(tests/e2e/free_ports.py 1)
source tests/e2e/gateway/port_of.sh
touch "$scratch/local.log" "$scratch/gateway.log"
"$bin/foretoken-local" --model tools/demo/target --listen "unix:$scratch/socket" \
  --http-listen 127.0.0.1:0 --http-tls-cert "$scratch/cert" \
  --http-tls-key "$scratch/key" --metrics-listen '' --threads 1 \
  --max-waiting-requests 400 2>"$scratch/local.log" &
pids+=($!)
"$bin/foretoken-gateway" --model tools/demo/target \
  --orchestrator "unix:$scratch/socket" --listen 127.0.0.1:0 \
  --tls-cert "$scratch/cert" --tls-key "$scratch/key" \
  --metrics-listen "127.0.0.1:$metrics_port" 2>"$scratch/gateway.log" &
gateway=$!
pids+=("$gateway")
local_port=$(port_of local)
gateway_port=$(port_of gateway)

body='{"prompt": "Once upon a time", "max_tokens": 32, "stream": true}'
for port in "$local_port" "$gateway_port"; do
  curl=(curl --silent --show-error --no-buffer --cacert "$scratch/cert")
  waits=0
  until "${curl[@]}" --fail "https://localhost:$port/health" >/dev/null 2>&1; do
    ((++waits < 600)) || fail "port $port does not serve"
    sleep 0.1
  done
  said=$("${curl[@]}" -H 'Content-Type: application/json' -d "$body" \
    "https://localhost:$port/v1/completions") || fail "port $port: $said"
  [[ $said == "data: "*"data: [DONE]" ]] || fail "port $port says: $said"
  ! curl --silent "https://localhost:$port/health" >/dev/null 2>&1 ||
    fail "port $port: a client that does not know the certificate is content"
  said=$(curl --silent "http://localhost:$port/health")
  [[ $said == *"https://"* ]] || fail "port $port says to plain HTTP: $said"
  cost=()
  [ "$port" != "$gateway_port" ] ||
    cost=(--pid "$gateway" --metrics "http://127.0.0.1:$metrics_port/metrics")
  python3 tests/e2e/gateway/streams.py "https://localhost:$port" --ca "$scratch/cert" \
    --streams 150 --at-once 40 "${cost[@]}"
done
