#!/usr/bin/env bash
# up.sh BINARIES: the options and messages of tools/up. Every failure names what
# failed, shows the end of its log and says how to stop what runs; a set with a GGUF
# file and without a draft model serves, and says where. Exits with 77 without
# PostgreSQL or Redis.
set -euo pipefail
cd -P "$(dirname "$0")/../.."
source tests/e2e/service_set.sh "${1:-}"
listener=
finish() {
  [ -z "$listener" ] || kill "$listener" 2>/dev/null || true
  finish_set
}
trap finish EXIT

# refused STATUS TEXT... -- COMMAND...: it ends with this status, nothing on stdout,
# and every TEXT on stderr.
refused() {
  local want=$1 status=0 texts=()
  shift
  while [ "$1" != -- ]; do texts+=("$1"); shift; done
  shift
  "$@" >"$scratch/stdout" 2>"$scratch/stderr" || status=$?
  [ "$status" = "$want" ] || fail "$*: exit $status, want $want: $(<"$scratch/stderr")"
  [ ! -s "$scratch/stdout" ] || fail "$*: $(<"$scratch/stdout")"
  local text
  for text in "${texts[@]}"; do
    grep -qF -- "$text" "$scratch/stderr" ||
      fail "$*: does not say '$text': $(<"$scratch/stderr")"
  done
}
way_out="FORETOKEN_RUN=$run $PWD/tools/down stops what runs"

# Wrong options: nothing begins.
refused 2 "--modle" "--draft-model" -- tools/up --modle x
refused 2 "--model: want" -- tools/up --model
refused 2 "$scratch/none: no such file" -- tools/up --model "$scratch/none"
refused 2 "want --model" -- tools/up --draft-model tools/demo/draft
[ ! -e "$run" ] || fail "a wrong option leaves $run"

# What cannot run is named before PostgreSQL starts.
refused 1 "$scratch has no foretoken (FORETOKEN_BIN)" "$way_out" -- \
  env FORETOKEN_BIN="$scratch" tools/up
echo "no weights" >"$scratch/text.gguf"
refused 1 "$scratch/text.gguf cannot be run" "not a GGUF file" "$way_out" -- \
  tools/up --model "$scratch/text.gguf"
mkdir "$scratch/bare"
cp tools/demo/draft/config.json "$scratch/bare"
refused 1 "$scratch/bare cannot be run" "$way_out" -- \
  tools/up --model "$scratch/bare"
refused 1 "$scratch/gone cannot be run" "$way_out" -- \
  env FORETOKEN_TARGET="$scratch/gone" tools/up
cp -r tools/demo/draft "$scratch/other"
python3 - "$scratch/other/tokenizer.json" <<'PYTHON'
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    tokenizer = json.load(file)
vocabulary = tokenizer["model"]["vocab"]
one, other = [text for text, i in vocabulary.items() if i in (4000, 4001)]
vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(tokenizer, file)
PYTHON
refused 1 "the tokenizer of $scratch/other is not that of" "$way_out" -- \
  tools/up --model tools/demo/target --draft-model "$scratch/other"
[ -z "$(running_parts)" ] || fail "runs after a refusal: $(running_parts)"

# Parts that fail: the end of their log.
refused 1 "foretoken crest build failed" "$scratch/none" "NOT_FOUND" "$way_out" -- \
  env FORETOKEN_CORPUS="$scratch/none" tools/up
# Another program on the gateway's port: what it answers, or that it says nothing, is
# not the gateway's.
for manner in fine silent; do
  rm -f "$scratch/listener"
  python3 -B tests/e2e/port_holder.py "$manner" "$FORETOKEN_HTTP_PORT" \
    >"$scratch/listener" 2>&1 &
  listener=$!
  until grep -qs ready "$scratch/listener"; do sleep 0.05; done
  refused 1 "$http_service ended instead of serving" "$run/$http_service.log" \
    "$(address_of "$http_service")" "$way_out" -- tools/up
  kill "$listener"
  wait "$listener" || true
  listener=
done

# Another model while this one runs; the same one goes on.
"$bin/foretoken" quantize --model tools/demo/target --type q8_0 \
  --out "$scratch/demo.gguf" >/dev/null 2>"$scratch/quantize.log" ||
  fail "quantize: $(<"$scratch/quantize.log")"
refused 1 "runs with $PWD/tools/demo/target and $PWD/tools/demo/draft" \
  "tools/down first" -- tools/up --model "$scratch/demo.gguf"
tools/up 2>"$scratch/stderr" || fail "$(<"$scratch/stderr")"
# Whatever has become of the target.
FORETOKEN_TARGET=$scratch/gone tools/down || fail "tools/down needs the target"
[ -z "$(running_parts)" ] || fail "runs after tools/down: $(running_parts)"

# A file, no draft model: the draft worker is not run.
tools/up --model "$scratch/demo.gguf" >"$scratch/stdout" 2>"$scratch/stderr" ||
  fail "$(<"$scratch/stderr")"
[ ! -s "$scratch/stdout" ] || fail "on stdout: $(<"$scratch/stdout")"
for text in "$scratch/demo.gguf" "http://$(address_of "$http_service")/v1" \
  "$(address_of orchestrator)" "$run/*.log" "FORETOKEN_RUN=$run $PWD/tools/down"; do
  grep -qF -- "$text" "$scratch/stderr" ||
    fail "tools/up does not say '$text': $(<"$scratch/stderr")"
done
page=$(awk '$1 == "page" { print $2 }' "$scratch/stderr")
[[ $(python3 -c 'import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(sys.argv[1], timeout=30).read().decode())' "$page") == \
  *"<html"* ]] || fail "no page at $page"
[ "$(running_parts | sort | tr '\n' ' ')" = \
  "crest gateway orchestrator postgres redis trie-drafter verifier " ] ||
  fail "runs: $(running_parts)"
generate() {
  "$bin/foretoken" generate --server "$(address_of orchestrator)" \
    --prompt "def heappush(heap, item):" --max-tokens 24 --mode "$1" 2>/dev/null
}
want=$(generate off)
[ "$(generate auto)" = "$want" ] || fail "mode auto gives another text"
tools/down
[ -z "$(running_parts)" ] || fail "runs after tools/down: $(running_parts)"
echo "PASSED"
