#!/usr/bin/env bash
# tls_services.sh BINARIES: the five services as tools/up runs them, first without
# TLS, then with `--tls`: every service answers only clients with a certificate of
# the private CA, and the orchestrator reaches all of them. The gateway answers over
# HTTPS alone. Exits with 77 without PostgreSQL or Redis.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/e2e/service_set.sh "${1:-}"
trap finish_set EXIT

plain() {
  env -u FORETOKEN_SERVER_TLS_CA -u FORETOKEN_SERVER_TLS_CERT \
    -u FORETOKEN_SERVER_TLS_KEY "$@"
}
without_certificate() {
  env -u FORETOKEN_SERVER_TLS_CERT -u FORETOKEN_SERVER_TLS_KEY "$@"
}

# A second call finds the parts running.
for _ in 1 2; do
  [ -z "$(tools/up)" ] || fail "tools/up prints an environment"
done
plain "$bin/foretoken" health --server "$(address_of orchestrator)" >/dev/null ||
  fail "tools/up starts with TLS"
wrong=$(tools/up --tls 2>&1) && fail "one set with and without TLS"
[[ $wrong == *"runs without TLS"* ]] || fail "tools/up --tls says: $wrong"
tools/down
for _ in 1 2; do
  environment=$(tools/up --tls)
  eval "$environment"
done
for part in "${services[@]}"; do
  health=("$bin/foretoken" health --server "$(address_of "$part")")
  "${health[@]}" >/dev/null || fail "$part does not answer a client of the CA"
  ! plain "${health[@]}" >/dev/null 2>&1 || fail "$part answers without TLS"
  ! without_certificate "${health[@]}" >/dev/null 2>&1 ||
    fail "$part answers a client without a certificate"
done

# A stream over HTTPS; a plain client is told what is wanted.
body='{"prompt": "def heappush(heap, item):", "max_tokens": 8, "stream": true}'
said=$(printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r
Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' "${#body}" "$body" |
  say_http)
[[ $said == "HTTP/1.1 200 "*"data: [DONE]"* ]] || fail "over HTTPS: $said"
said=$(printf 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n' |
  (tls_folder=$scratch/none && say_http))
[[ $said == "HTTP/1.1 400 "*"https://"* ]] || fail "plain HTTP: $said"

generate() {
  "$bin/foretoken" generate --server "$(address_of orchestrator)" \
    --prompt "def heappush(heap, item):" --max-tokens 24 --mode "$1" \
    2>"$scratch/$1.stats"
}
want=$(generate off)
for mode in draft_model ngram_trie crest ouroboros auto; do
  [ "$(generate "$mode")" = "$want" ] || fail "mode $mode gives another text"
done
exec 3<>"/dev/tcp/127.0.0.1/$(metrics_port_of orchestrator)"
printf "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" >&3
page=$(tr -d "\r" <&3)
# Every drafting service drafted over its connection.
for drafter in crest draft_model ngram_trie ouroboros; do
  grep "^foretoken_drafted_tokens_total{drafter=\"$drafter\"} [1-9]" \
    <<<"$page" >/dev/null || fail "$drafter drafted nothing"
done
wrong=$(tools/up 2>&1) && fail "one set with and without TLS"
[[ $wrong == *"runs with TLS"* ]] || fail "tools/up says: $wrong"
echo "PASSED"
