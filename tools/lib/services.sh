# Functions that run all services on this machine, each in its own process,
# with a private PostgreSQL and Redis. Sourced by tools/up, tools/down,
# tools/soak and tools/quickstart, from the project's root.
#
# Variables to set before sourcing (a set with another folder and other ports runs
# independently of the usual one):
#   FORETOKEN_RUN             pid files, logs, sockets, Redis' file (.run)
#   FORETOKEN_BIN             binaries (build/release/bin)
#   FORETOKEN_FIRST_PORT      first of the ports, the orchestrator's (50050)
#   FORETOKEN_FIRST_METRICS_PORT   first of as many metrics ports (9100)
#   FORETOKEN_HTTP_PORT       port of the gateway (8080)
#   FORETOKEN_TARGET, _DRAFT  Hugging Face directories or GGUF files with the same
#                             tokenizer (the demo pair); a target of your own without
#                             a draft model runs without the draft worker
#   FORETOKEN_TOKENS          token file of the orchestrator's callers, whose
#                             tokens are keys of the gateway, too; without one,
#                             everybody may call. Read when a service starts
#   FORETOKEN_CORPUS          folder of .py files for datastore and prior
#                             (Python's standard library)

run=$(realpath -m "${FORETOKEN_RUN:-.run}")
bin=${FORETOKEN_BIN:-build/release/bin}
target=${FORETOKEN_TARGET:-tools/demo/target}
draft=${FORETOKEN_DRAFT:-}
if [ -z "$draft" ] && [ -z "${FORETOKEN_TARGET:-}" ]; then draft=tools/demo/draft; fi

# Prints the bytes that tell the target's tokenizer from others. A GGUF file has its
# tokenizer near the beginning; models that differ there only share no datastore.
tokenizer_bytes() {
  if [ -d "$target" ]; then
    cat "$target"/tokenizer.* 2>/dev/null
  else
    head -c 16777216 "$target" 2>/dev/null
  fi
}
# Files made with the target's tokenizer are named after it. check_models names a
# target without one; tools/down stops what runs after its target is gone.
vocabulary=$({ tokenizer_bytes || true; } | cksum | cut -d' ' -f1)
all_services=(verifier draft-worker trie-drafter crest orchestrator)
# Those that the models call for, in the order in which they start.
services=()
for part in "${all_services[@]}"; do
  if [ "$part" != draft-worker ] || [ -n "$draft" ]; then services+=("$part"); fi
done
unset part
# Not one of them: it speaks HTTP, and tools/up alone starts it.
http_service=gateway

# Prints the folder of the newest Python standard library on this machine.
python_library() {
  local folder
  folder=$(ls -d /usr/lib/python3.*/ 2>/dev/null | sort -V | tail -1)
  [ -f "${folder}os.py" ] || folder=$(python3 -c \
    'import sysconfig; print(sysconfig.get_path("stdlib"))')
  printf '%s\n' "${folder%/}"
}

# fail_with MESSAGE LOG: the message and the end of the log on stderr; returns 1.
fail_with() {
  echo "$1; the end of $2:" >&2
  tail -n 5 "$2" >&2 || true
  return 1
}

# step LABEL COMMAND...: runs a step that may take minutes, which tools/up shows.
step() {
  if declare -F with_progress >/dev/null; then
    with_progress "$@"
  else
    "${@:2}"
  fi
}

corpus() { printf '%s\n' "${FORETOKEN_CORPUS:-$(python_library)}"; }

# Index of each service's port.
declare -A place=([orchestrator]=0 [verifier]=1 [draft-worker]=2
  [trie-drafter]=3 [crest]=4 [gateway]=5)
address_of() {
  if [ "$1" = "$http_service" ]; then
    echo "127.0.0.1:${FORETOKEN_HTTP_PORT:-8080}"
    return
  fi
  echo "127.0.0.1:$((${FORETOKEN_FIRST_PORT:-50050} + ${place[$1]}))"
}
metrics_port_of() {
  echo $((${FORETOKEN_FIRST_METRICS_PORT:-9100} + ${place[$1]}))
}

# Certificates of a set with TLS; it has TLS while the file `on` exists.
tls_folder=$run/tls
has_tls() { [ -f "$tls_folder/on" ]; }

is_for_localhost() {
  openssl x509 -noout -checkhost localhost -in "$1" | grep -q 'does match'
}

# Makes the CA, and a certificate for every service and for clients, where they
# are missing or about to expire. Keys never leave the folder.
make_certificates() (
  umask 077
  mkdir -p "$tls_folder" && cd "$tls_folder" || exit 1
  key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
  if [ ! -f ca.crt ]; then
    rm -f ./*.crt
    openssl req -x509 "${key[@]}" -days 3650 -subj "/CN=foretoken-ca" \
      -keyout ca.key -out ca.crt || exit 1
  fi
  for name in "${services[@]}" "$http_service" client; do
    if openssl x509 -checkend 604800 -noout -in "$name.crt" &&
      { [ "$name" = client ] || is_for_localhost "$name.crt"; }; then
      continue
    fi
    openssl req "${key[@]}" -subj "/CN=$name" -keyout "$name.key" \
      -out "$name.csr" || exit 1
    # Clients are known by their common name, servers by their address.
    extensions=/dev/null
    if [ "$name" != client ]; then
      extensions=$name.ext
      echo "subjectAltName=DNS:localhost,IP:127.0.0.1" >"$extensions"
    fi
    openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key \
      -CAcreateserial -days 365 -extfile "$extensions" -out "$name.crt" ||
      exit 1
    rm -f "$name.csr" "$name.ext"
  done
) >"$run/tls.log" 2>&1

# Prints the environment of a client of a set with TLS.
client_environment() {
  printf 'export %s=%q\n' FORETOKEN_SERVER_TLS_CA "$tls_folder/ca.crt" \
    FORETOKEN_SERVER_TLS_CERT "$tls_folder/client.crt" \
    FORETOKEN_SERVER_TLS_KEY "$tls_folder/client.key"
}
use_tls() {
  if has_tls; then
    eval "$(client_environment)"
  else
    unset FORETOKEN_SERVER_TLS_CA FORETOKEN_SERVER_TLS_CERT \
      FORETOKEN_SERVER_TLS_KEY
  fi
}
use_tls

# choose_tls yes|'': with or without TLS from the next start on; one set cannot
# be both.
choose_tls() {
  local before=
  has_tls && before=yes
  if [ "$before" != "$1" ]; then
    local part
    for part in "${all_services[@]}" "$http_service"; do
      [ -z "$(pid_of "$part")" ] ||
        { echo "$part runs $([ -n "$before" ] && echo with || echo without)" \
            "TLS: tools/down first" >&2
          return 1; }
    done
  fi
  mkdir -p "$run"
  if [ -n "$1" ]; then
    make_certificates ||
      fail_with "no certificates could be made" "$run/tls.log" || return 1
    touch "$tls_folder/on"
  else
    rm -f "$tls_folder/on"
  fi
  use_tls
}

# choose_models: takes target and draft for this set until they are chosen again; one
# set cannot run with two.
choose_models() {
  local part chosen before=
  chosen=$(realpath -m "$target" ${draft:+"$draft"})
  [ ! -f "$run/models" ] || before=$(<"$run/models")
  if [ -n "$before" ] && [ "$before" != "$chosen" ]; then
    for part in "${all_services[@]}" "$http_service"; do
      [ -z "$(pid_of "$part")" ] ||
        { echo "$part runs with ${before//$'\n'/ and }: tools/down first" >&2
          return 1; }
    done
  fi
  mkdir -p "$run"
  printf '%s\n' "$chosen" >"$run/models"
}

# check_models: names a model that is missing or not supported, and a draft model of
# another tokenizer, before anything starts.
check_models() {
  local model fingerprints=()
  for model in "$target" ${draft:+"$draft"}; do
    "$bin/foretoken" inspect "$model" >"$run/inspect.log" 2>&1 ||
      fail_with "$model cannot be run" "$run/inspect.log" || return 1
    fingerprints+=("$(awk '$1 == "fingerprint" { print $2 }' "$run/inspect.log")")
  done
  [ -z "$draft" ] || [ "${fingerprints[0]}" = "${fingerprints[1]}" ] ||
    { echo "the tokenizer of $draft is not that of $target" >&2; return 1; }
}

# tls_environment NAME: what a service adds to its environment, one a line: its
# own certificate as a server, and as a client of the others.
tls_environment() {
  has_tls || return 0
  local side
  for side in '' VERIFIER_ DRAFTER_ ORCHESTRATOR_; do
    echo "FORETOKEN_${side}TLS_CERT=$tls_folder/$1.crt"
    echo "FORETOKEN_${side}TLS_KEY=$tls_folder/$1.key"
    [ -z "$side" ] || echo "FORETOKEN_${side}TLS_CA=$tls_folder/ca.crt"
  done
  # SDKs and browsers have no certificate.
  [ "$1" = "$http_service" ] || echo "FORETOKEN_TLS_CLIENT_CA=$tls_folder/ca.crt"
}

# Prints the pid of a running part, or nothing. The pid in its file counts only
# while it belongs to that program: pids are reused.
pid_of() {
  local pid file=$run/$1.pid
  if [ "$1" = postgres ]; then
    [ -f "$run/postgres.folder" ] || return 0
    file=$(<"$run/postgres.folder")/data/postmaster.pid
  fi
  [ -f "$file" ] || return 0
  read -r pid <"$file" || [ -n "$pid" ] || return 0
  ! is_part "$1" "${pid:-none}" || printf '%s' "$pid"
}

# is_part NAME PID: whether the process runs that part's program.
is_part() {
  local program arguments=()
  # Not a bare return, which in a trap gives the status from before the trap.
  program=$(readlink "/proc/$2/exe" 2>/dev/null) || return 1
  case "${program##*/}" in
    foretoken-"$1"* | "$1" | "$1"-*) ;;
    python3*)
      # The interpreter runs more than the dashboards: the script tells.
      [ "$1" = dashboards ] || return 1
      mapfile -d '' -t arguments 2>/dev/null <"/proc/$2/cmdline" || return 1
      [[ " ${arguments[*]} " == *" tools/dashboards/serve.py "* ]] || return 1
      ;;
    *) return 1 ;;
  esac
}

# listens PID PORT: whether the process listens on the TCP port. Another program that
# holds the port may answer in its place.
listens() {
  local hex inode
  printf -v hex '%04X' "$2"
  for inode in $(awk -v port=":$hex\$" '$4 == "0A" && $2 ~ port { print $10 }' \
    /proc/net/tcp /proc/net/tcp6 2>/dev/null); do
    [ -z "$(find "/proc/$1/fd" -lname "socket:\[$inode\]" 2>/dev/null)" ] || return 0
  done
  return 1
}

# PostgreSQL refuses to run as root; its socket must be reachable for its user.
as_postgres() {
  if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

postgres_programs() {
  ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1
}

# check_programs: names what is missing of the programs that a set runs.
check_programs() {
  local part
  for part in "" "${services[@]/#/-}" "-$http_service"; do
    [ -x "$bin/foretoken$part" ] ||
      { echo "$bin has no foretoken$part (FORETOKEN_BIN)" >&2; return 1; }
  done
  [ -x "$(postgres_programs)/initdb" ] ||
    { echo "PostgreSQL is not installed (tools/deps)" >&2; return 1; }
  command -v redis-server >/dev/null && command -v redis-cli >/dev/null ||
    { echo "Redis is not installed (tools/deps)" >&2; return 1; }
}

start_postgres() {
  local programs folder
  programs=$(postgres_programs)
  if [ -f "$run/postgres.folder" ] && [ -d "$(<"$run/postgres.folder")" ]; then
    folder=$(<"$run/postgres.folder")
  else
    folder=$(as_postgres mktemp -d "${TMPDIR:-/tmp}/foretoken-postgres.XXXXXX")
    (cd / && as_postgres "$programs/initdb" -D "$folder/data" -A trust \
      -U postgres --no-sync --locale=C -E UTF8) >"$run/postgres.log" 2>&1 ||
      return 1
    printf '%s' "$folder" >"$run/postgres.folder"
  fi
  export FORETOKEN_POSTGRES_URL="host=$folder user=postgres dbname=postgres"
  # Not pg_ctl's status, which takes a zombie for a running server.
  [ -z "$(pid_of postgres)" ] || return 0
  (cd / && as_postgres "$programs/pg_ctl" -D "$folder/data" -w \
    -l "$folder/server.log" \
    -o "-c listen_addresses= -c shared_buffers=64MB -k $folder" start) \
    >>"$run/postgres.log" 2>&1 && return
  tail -n 3 "$folder/server.log" >>"$run/postgres.log" 2>&1
  return 1
}

stop_postgres() {
  local folder
  [ -f "$run/postgres.folder" ] || return 0
  folder=$(<"$run/postgres.folder")
  (cd / && as_postgres "$(postgres_programs)/pg_ctl" -D "$folder/data" \
    -m fast -w stop) >/dev/null 2>&1 || true
}

# Runs a program in the background, without a message from the shell if it is
# killed.
in_background() {
  local name=$1
  shift
  "$@" >>"$run/$name.log" 2>&1 &
  printf '%s' $! >"$run/$name.pid"
  disown
}

start_redis() {
  [ -z "$(pid_of redis)" ] || return 0
  in_background redis redis-server --port 0 --unixsocket "$run/redis.sock" \
    --unixsocketperm 700 --dir "$run" --save '' --appendonly yes \
    --maxmemory 64mb --maxmemory-policy allkeys-lru
}

# Builds the CREST datastore of the corpus and publishes it, once.
publish_datastore() {
  "$bin/foretoken" crest list 2>"$run/crest-build.log" |
    grep "\"python-$vocabulary\"" >/dev/null && return
  "$bin/foretoken" crest build --corpus "$(corpus)" --suffix .py \
    --skip-invalid --tokenizer "$target" --max-n 4 --top 65536 \
    --work "$run/crest.work" --name "python-$vocabulary" \
    2>"$run/crest-build.log" >/dev/null ||
    fail_with "foretoken crest build failed" "$run/crest-build.log"
}

# Builds the static prior of the trie drafter from the same text.
make_prior() {
  [ -f "$run/python-$vocabulary.prior" ] ||
    "$bin/foretoken" prior build --corpus "$(corpus)" --tokenizer \
      "$target" --max-bytes 4000000 --out "$run/python-$vocabulary.prior" \
      2>"$run/prior-build.log" >/dev/null ||
    fail_with "foretoken prior build failed" "$run/prior-build.log"
}

# start NAME ARGUMENTS...: starts a service in the background, unless it runs.
start() {
  local name=$1
  shift
  [ -z "$(pid_of "$name")" ] || return 0
  local environment
  mapfile -t environment < <(tls_environment "$name")
  in_background "$name" env "${environment[@]}" "$bin/foretoken-$name" --listen "$(address_of "$name")" \
    --metrics-listen "127.0.0.1:$(metrics_port_of "$name")" "$@"
}

# Makes what FORETOKEN_TOKENS becomes: the gateway's own token, which no HTTP
# client has; the orchestrator's file, where that token speaks for others; and the
# gateway's keys, names alone, because the orchestrator applies the limits.
make_tokens() (
  umask 077
  [ -s "$run/gateway.token" ] ||
    head -c 24 /dev/urandom | base64 >"$run/gateway.token"
  {
    cat "$FORETOKEN_TOKENS"
    echo
    echo "$(<"$run/gateway.token") gateway speaks_for_others"
  } >"$run/orchestrator.tokens.new"
  awk '/^[ \t]*(#|$)/ || /[ \t]speaks_for_others/ { next }
       { print $1, $2 ~ /=/ ? "" : $2 }' \
    "$FORETOKEN_TOKENS" >"$run/gateway.keys.new"
  # At once: a service may be reading them.
  mv "$run/orchestrator.tokens.new" "$run/orchestrator.tokens"
  mv "$run/gateway.keys.new" "$run/gateway.keys"
)

start_service() {
  case $1 in
    orchestrator | "$http_service")
      [ -z "${FORETOKEN_TOKENS:-}" ] || make_tokens
      ;;
  esac
  case $1 in
    verifier) start verifier --model "$target" ;;
    draft-worker) start draft-worker --model "$draft" ;;
    trie-drafter)
      FORETOKEN_REDIS_URL="unix://$run/redis.sock" \
        start trie-drafter --tokenizer "$target" \
        --prior "$run/python-$vocabulary.prior"
      ;;
    crest)
      start crest --datastore "python-$vocabulary=postgres" \
        --tokenizer "$target"
      ;;
    orchestrator)
      start orchestrator --verifiers "$(address_of verifier)" \
        ${draft:+--draft-worker "$(address_of draft-worker)"} \
        --trie-drafter "$(address_of trie-drafter)" \
        --crest "$(address_of crest)" \
        --crest-datastore "python-$vocabulary" --tokenizer "$target" \
        ${FORETOKEN_TOKENS:+--auth-token-file "$run/orchestrator.tokens"}
      ;;
    gateway)
      start gateway --orchestrator "$(address_of orchestrator)" \
        --model "$target" \
        ${FORETOKEN_TOKENS:+--api-key-file "$run/gateway.keys"} \
        ${FORETOKEN_TOKENS:+--orchestrator-token-file "$run/gateway.token"}
      ;;
  esac
}

# Starts any part of the set by name.
start_part() {
  case $1 in
    postgres) start_postgres ;;
    redis) start_redis ;;
    *) start_service "$1" ;;
  esac
}

# Starts the whole set, after building missing datastores and priors.
start_all() {
  mkdir -p "$run"
  local part
  for part in postgres redis; do
    start_part "$part" ||
      fail_with "$part did not start" "$run/$part.log" || return 1
    await_part "$part" || return 1
  done
  step "counting n-grams of $(corpus) for CREST" publish_datastore ||
    return 1
  step "counting n-grams of $(corpus) for the prior" make_prior || return 1
  for part in "${services[@]}"; do start_service "$part"; done
  for part in "${services[@]}"; do await_part "$part" || return 1; done
}

# say_http: says what it reads to the gateway, and prints what the gateway says until
# it closes the connection, for two seconds at most.
say_http() {
  local address
  address=$(address_of "$http_service")
  if has_tls; then
    timeout 2 openssl s_client -quiet -connect "$address" -CAfile "$tls_folder/ca.crt" \
      -verify_hostname localhost -verify_return_error 2>/dev/null
  else
    # In a shell of its own, whose end closes the connection.
    (
      exec 3<>"/dev/tcp/${address/://}"
      cat >&3
      timeout 2 cat <&3
    )
  fi
}

# answers PART: whether it is serving now.
answers() {
  case $1 in
    postgres)
      "$(postgres_programs)/pg_isready" -q -h "$(<"$run/postgres.folder")"
      ;;
    redis) [ "$(redis-cli -s "$run/redis.sock" ping)" = PONG ] ;;
    "$http_service")
      [[ $(printf 'GET /health HTTP/1.0\r\n\r\n' | say_http) == *' 200 '* ]]
      ;;
    *) "$bin/foretoken" health --server "$(address_of "$1")" ;;
  esac >/dev/null 2>&1
}

# has_ended PART: whether the process that was started is gone.
has_ended() {
  [ "$1" != postgres ] && [ -s "$run/$1.pid" ] &&
    ! kill -0 "$(<"$run/$1.pid")" 2>/dev/null
}

# serves PART: whether it answers, in the process that was started.
serves() {
  local pid address
  pid=$(pid_of "$1")
  [ -n "$pid" ] || return 1
  case $1 in
    # On Unix sockets in folders of this set.
    postgres | redis) ;;
    *)
      address=$(address_of "$1")
      listens "$pid" "${address##*:}" || return 1
      ;;
  esac
  answers "$1"
}

# Waits until a part serves.
await_part() {
  local limit=60
  # They listen once their model is loaded, which may come from a slow disk.
  case $1 in verifier | draft-worker) limit=300 ;; esac
  local deadline=$((SECONDS + limit))
  until ! has_ended "$1" && serves "$1"; do
    if has_ended "$1"; then
      fail_with "$1 ended instead of serving" "$run/$1.log" || return 1
    elif [ "$SECONDS" -ge "$deadline" ]; then
      fail_with "$1 does not serve after $limit s" "$run/$1.log" || return 1
    fi
    sleep 0.1
  done
}

# stop NAME: terminates a part and waits until it is gone.
stop() {
  local pid
  pid=$(pid_of "$1")
  rm -f "$run/$1.pid"
  [ -n "$pid" ] || return 0
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 400); do
    is_part "$1" "$pid" || return 0
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
}

# Prints the running parts.
running_parts() {
  local part
  for part in "$http_service" "${all_services[@]}" redis postgres; do
    [ -z "$(pid_of "$part")" ] || echo "$part"
  done
}

# stop_all [PART...]: stops all parts except those named, in the reverse order:
# services first, then Redis and PostgreSQL; their data is kept.
stop_all() {
  local part i parts=(postgres redis "${all_services[@]}" "$http_service")
  for ((i = ${#parts[@]} - 1; i >= 0; --i)); do
    part=${parts[i]}
    case " $* " in *" $part "*) continue ;; esac
    if [ "$part" = postgres ]; then stop_postgres; else stop "$part"; fi
  done
}
