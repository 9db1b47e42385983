#!/usr/bin/env bash
# tokens.sh: what tools/lib/services.sh makes of a token file for the orchestrator
# and the gateway. Starts nothing.
set -euo pipefail
cd "$(dirname "$0")/../../.."
folder=$(mktemp -d "${TMPDIR:-/tmp}/foretoken-tokens.XXXXXX")
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "$*" >&2
  exit 1
}

cat >"$folder/tokens" <<'END'
# Two accounts, a token without a name, and another gateway.
token-of-alice-01234567 alice weight=2
token-of-bob-0123456789 bob requests=3 tokens_per_minute=100
token-of-nobody-0123456 weight=0.5
token-of-another-gate-1 other-gateway speaks_for_others
END
export FORETOKEN_RUN=$folder/run FORETOKEN_TOKENS=$folder/tokens
mkdir "$FORETOKEN_RUN"
source tools/lib/services.sh
start() { echo "$*"; }
orchestrator=$(start_service orchestrator)
gateway=$(start_service gateway)

own=$(<"$run/gateway.token")
[ "${#own}" -ge 16 ] || fail "the gateway's token is short"
[[ $orchestrator == *"--auth-token-file $run/orchestrator.tokens"* ]] ||
  fail "orchestrator: $orchestrator"
[[ $gateway == *"--api-key-file $run/gateway.keys"* ]] || fail "gateway: $gateway"
[[ $gateway == *"--orchestrator-token-file $run/gateway.token"* ]] ||
  fail "gateway: $gateway"
[ "$(grep -c . "$run/orchestrator.tokens")" = 6 ] || fail "lines are missing"
grep -qxF "$own gateway speaks_for_others" "$run/orchestrator.tokens" ||
  fail "the gateway may not speak for others"
diff - <(sed 's/ *$//' "$run/gateway.keys") <<'END' || fail "wrong keys"
token-of-alice-01234567 alice
token-of-bob-0123456789 bob
token-of-nobody-0123456
END
for file in gateway.token orchestrator.tokens gateway.keys; do
  [ "$(stat -c %a "$run/$file")" = 600 ] || fail "$file can be read by others"
done
start_service gateway >/dev/null
[ "$(<"$run/gateway.token")" = "$own" ] || fail "the token changed"
