#!/usr/bin/env bash
# Clients of the HTTP API, with the demo model: the README's curl lines, many
# streams of which half are left early, requests for structured output as other
# servers document them, and SDKs, against the gateway as a service and as a part of
# foretoken-local.
#
#   clients.sh FOLDER_OF_BINARIES PART
#
# PART: curl, streams, structured, messages, openai, parse, responses, anthropic,
# litellm, langchain.
# Exit status 77: what the part needs is not installed. The SDKs are those of
# FORETOKEN_SDK_PYTHON (.cache/sdk/bin/python, which tools/deps --sdk makes).
set -euo pipefail
bin=$(realpath "$1")
part=$2
cd "$(dirname "$0")/../../.."
sdk=${FORETOKEN_SDK_PYTHON:-.cache/sdk/bin/python}

case $part in
  curl) command -v curl >/dev/null || { echo "skipped: no curl"; exit 77; } ;;
  openai | parse | responses | anthropic | litellm | langchain)
    package=${part/langchain/langchain_openai}
    case $part in parse | responses) package=openai ;; esac
    "$sdk" -c "import importlib.util as util, sys
sys.exit(util.find_spec('$package') is None)" 2>/dev/null ||
      { echo "skipped: $sdk has no $package; tools/deps --sdk"; exit 77; }
    ;;
esac

scratch=$(mktemp -d)
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" || true; done
  rm -rf "$scratch"
}
trap stop EXIT

# start NAME PROGRAM ARGUMENT...
start() {
  : >"$scratch/$1.log"  # port_of may look before the program runs
  "$bin/$2" --metrics-listen '' "${@:3}" 2>"$scratch/$1.log" &
  pids+=($!)
}
# start_local NAME ARGUMENT..., also behind $scratch/NAME
start_local() {
  start "$1" foretoken-local --listen "unix:$scratch/$1" \
    --http-listen 127.0.0.1:0 --threads 1 "${@:2}"
}
# start_gateway NAME SERVER ARGUMENT...: before $scratch/SERVER
start_gateway() {
  start "$1" foretoken-gateway --orchestrator "unix:$scratch/$2" \
    --listen 127.0.0.1:0 "${@:3}"
}
source tests/e2e/gateway/port_of.sh
wait_for() {
  python3 - "$1" <<'WAIT' || { tail "$scratch"/*.log; exit 1; }
import sys, time, urllib.request
for _ in range(600):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/health")
        sys.exit(0)
    except OSError:
        time.sleep(0.1)
sys.exit("the server is not ready")
WAIT
}

demo=(--model tools/demo/target
  --chat-template tests/golden/chat_templates/templates/chatml.jinja)
case $part in
  curl | streams)
    start_local local "${demo[@]}"
    start_gateway gateway local "${demo[@]}"
    used=(local gateway)
    ;;
  *)
    # With keys and every service in a process of its own. A second model calls
    # tools.
    key=key-of-the-sdk-test
    own=token-of-the-gateway
    echo "$key tester" >"$scratch/keys"
    echo "$own" >"$scratch/token"
    echo "$own gateway speaks_for_others" >"$scratch/tokens"
    python3 tests/e2e/gateway/scripted_model.py "$scratch/model"
    start_local local "${demo[@]}" --api-key-file "$scratch/keys"
    start verifier foretoken-verifier --model tools/demo/target --threads 1 \
      --listen "unix:$scratch/verifier"
    start orchestrator foretoken-orchestrator --tokenizer tools/demo/target \
      --verifiers "unix:$scratch/verifier" \
      --listen "unix:$scratch/orchestrator" --auth-token-file "$scratch/tokens"
    start_gateway gateway orchestrator "${demo[@]}" \
      --api-key-file "$scratch/keys" --orchestrator-token-file "$scratch/token"
    start_local tools_local --model "$scratch/model"
    start_gateway tools_gateway tools_local --model "$scratch/model"
    used=(local gateway tools_local tools_gateway)
    ;;
esac
ports=()
for name in "${used[@]}"; do
  port=$(port_of "$name")
  wait_for "$port"
  ports+=("$port")
done

for i in 0 1; do
  port=${ports[i]}
  case $part in
    curl)
      pages=(README.md docs/api.md docs/api_embeddings.md docs/api_messages.md)
      count=0
      while read -r line; do
        line=${line//127.0.0.1:8080/127.0.0.1:$port}
        answer=$(eval "$line --silent --show-error --fail-with-body") ||
          { echo "failed: $line: $answer"; exit 1; }
        case $answer in
          '{'*'}' | *'data: [DONE]') ;;
          *) echo "no answer: $line: $answer"; exit 1 ;;
        esac
        count=$((count + 1))
        # The demo model has no fill-in-the-middle tokens.
      done < <(python3 -B tests/e2e/documented_commands.py --curl "${pages[@]}" |
        grep -v /infill)
      [ "$count" -ge 8 ] || { echo "only $count curl commands in the pages"; exit 1; }
      echo "$count curl commands of ${pages[*]} work on port $port"
      ;;
    streams)
      python3 tests/e2e/gateway/streams.py "http://127.0.0.1:$port" \
        --streams 300 --at-once 60
      ;;
    structured)
      # The SDKs' Python has jsonschema; the script does without where it must.
      python=$sdk
      [ -x "$sdk" ] || python=python3
      "$python" -B tests/e2e/gateway/structured_output.py \
        "http://127.0.0.1:$port/v1" "http://127.0.0.1:${ports[i + 2]}/v1" "$key"
      ;;
    messages)
      python3 -B tests/e2e/gateway/messages_requests.py \
        "http://127.0.0.1:$port/v1" "http://127.0.0.1:${ports[i + 2]}/v1" "$key"
      ;;
    *)
      LITELLM_LOCAL_MODEL_COST_MAP=True "$sdk" -B \
        "tests/e2e/gateway/${part}_sdk.py" "http://127.0.0.1:$port/v1" \
        "http://127.0.0.1:${ports[i + 2]}/v1" "$key"
      ;;
  esac
done
