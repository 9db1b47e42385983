# What tests/deploy/live --alerts breaks, step by step; sourced by it. Every step
# leaves the services whole for the next, except the last.
every_step=(draft_worker_dies gateway_dies stores_are_lost postgres_is_lost
  pages_are_short verifier_pauses engine_hangs verifier_dies)
# Alerts that cannot be seen here.
unseen=''

# meanwhile ...: a fault that goes on until end_meanwhile.
meanwhile() {
  "${PYTHON:-python3}" -B tests/deploy/live_faults.py "$@" &
  helper=$!
}
end_meanwhile() {
  kill "$helper" 2>/dev/null && wait "$helper" || true
  helper=''
}
# break_off NAME: ends a load whose requests may fail, because things are broken;
# what they gave until then must be right.
break_off() {
  unload "$1" || true
  "${PYTHON:-python3}" -B -c 'import json, sys
modes = json.load(open(sys.argv[1]))["modes"].values()
sys.exit(any(mode["wrong_tokens"] for mode in modes))' "$scratch/$1.json" ||
    fail "client $1 got wrong tokens: $(<"$scratch/$1.json")"
}

# restart_verifier FLAGS...: another one in its place.
restart_verifier() {
  stop verifier
  start verifier --hang-timeout 1s "$@"
  await_part verifier
}

# Fixed modes go on without drafts.
draft_worker_dies() {
  load usual --concurrency 3 --modes draft_model
  # A yesterday that is long enough for the alert to last.
  local accept='(1 + sum(rate(foretoken_spec_decode_num_accepted_tokens_total[15s]))
    / sum(rate(foretoken_rounds_total[15s])))[25s:1s]'
  live true "$url" "min_over_time($accept) > 1.2 and count_over_time($accept) > 23"
  kill -9 "$(pid_of draft-worker)"
  fires ForetokenDraftsMissing ForetokenBreakerOpen ForetokenAcceptLengthFell
  break_off usual
}

# Requests over gRPC go on.
gateway_dies() {
  kill -9 "$(pid_of "$http_service")"
  fires ForetokenNoGateway
  same_text off "without a gateway"
  start_part "$http_service"
  await_part "$http_service"
  once_over_http || fail "the gateway does not answer after a restart"
}

# Full queues; Redis and a version of the datastore are gone.
stores_are_lost() {
  load eager --concurrency 64 --modes off,ngram_trie
  stop redis
  psql -qX -v ON_ERROR_STOP=1 "$FORETOKEN_POSTGRES_URL" -c \
    'UPDATE foretoken_crest_versions SET version = version + 1000 WHERE current'
  fires ForetokenRequestsRefused ForetokenRedisDown ForetokenDatastoreStale
  break_off eager
  same_text ngram_trie "without Redis"
  start_part redis
  await "the trie drafter does not find the new Redis" \
    holds trie-drafter foretoken_redis_up 1
}

# PostgreSQL is too slow for some look-ups, then gone.
postgres_is_lost() {
  load usual --concurrency 3 --modes crest
  while psql -qX -v ON_ERROR_STOP=1 "$FORETOKEN_POSTGRES_URL" \
    -c 'BEGIN; LOCK TABLE foretoken_crest_rows_1;' \
    -c "SELECT pg_sleep(0.3); COMMIT; SELECT pg_sleep(0.2)"; do :; done \
    >/dev/null 2>>"$scratch/locks.log" &
  helper=$!
  fires ForetokenLookupErrors
  end_meanwhile
  stop_postgres
  fires ForetokenDatastoreDown
  break_off usual
  same_text crest "without PostgreSQL"
  start_part postgres
  await "crest does not find PostgreSQL again" holds crest \
    "foretoken_crest_datastore_ready{datastore=\"python-$vocabulary\"}" 1
}

# Pages for half of the sessions: one that is preempted frees few of them.
pages_are_short() {
  restart_verifier --model "$target" --kv-cache-bytes 16777216
  load eager --concurrency 64 --max-tokens 128 --modes off
  fires ForetokenKvPagesShort
  break_off eager
}

verifier_pauses() {
  restart_verifier --model "$target"
  load usual --concurrency 3
  meanwhile pauses "$(pid_of verifier)"
  fires ForetokenSlowFirstToken
  end_meanwhile
  break_off usual
}

# A pass that does not end. One thread: a pass goes on without any of its others.
engine_hangs() {
  if ! faults can_hold; then
    echo "skipped: ForetokenEngineHangs, ptrace is not allowed here"
    unseen=ForetokenEngineHangs
    return
  fi
  # Another process: a hang is a multiple of the longest pass that one has seen.
  restart_verifier --model "$target" --threads 1
  load usual --concurrency 3
  meanwhile hangs "$(pid_of verifier)" \
    "http://127.0.0.1:$(metrics_port_of verifier)/metrics"
  fires ForetokenEngineHangs
  end_meanwhile
  break_off usual
}

# A damaged model in its place, whose tokens are its own, then none; no
# orchestrator at the end.
verifier_dies() {
  load usual --concurrency 3
  faults damage "$target" "$scratch/damaged"
  restart_verifier --model "$scratch/damaged"
  fires ForetokenSessionsBroken
  kill -9 "$(pid_of verifier)"
  while true; do once_over_http || sleep 0.2; done &
  helper=$!
  fires ForetokenNoVerifier ForetokenRequestsFailing ForetokenHttpFailing
  end_meanwhile
  kill -9 "$(pid_of orchestrator)"
  fires ForetokenNoOrchestrator
}
