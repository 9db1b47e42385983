# The five services on this machine, each a process of its own, with a private
# PostgreSQL and Redis: sourced by tools/up, tools/down, tools/soak and
# tools/quickstart, from the project's root.
#
# State lives in .run: pid files, logs, sockets' addresses. The default ports
# are the services' own. FORETOKEN_TARGET and FORETOKEN_DRAFT name other models
# (Hugging Face directories of one tokenizer).

run=.run
bin=build/release/bin
target=${FORETOKEN_TARGET:-tools/demo/target}
draft=${FORETOKEN_DRAFT:-tools/demo/draft}
# What is made of a text with the target's tokenizer is named after it.
vocabulary=$(cat "$target"/tokenizer.* 2>/dev/null | cksum | cut -d' ' -f1)
services=(verifier draft-worker trie-drafter crest orchestrator)

# The newest standard library of Python on this machine.
python_library() {
  local folder
  folder=$(ls -d /usr/lib/python3.*/ 2>/dev/null | sort -V | tail -1)
  [ -f "${folder}os.py" ] || folder=$(python3 -c \
    'import sysconfig; print(sysconfig.get_path("stdlib"))')
  printf '%s\n' "${folder%/}"
}

# The pid of a part that runs, or nothing. The pid in its file counts only
# while it is that program: pids come round again.
pid_of() {
  local pid program
  [ -f "$run/$1.pid" ] || return 0
  pid=$(<"$run/$1.pid")
  program=$(readlink "/proc/${pid:-none}/exe" 2>/dev/null) || return 0
  case "${program##*/}" in
    foretoken-"$1"* | redis-*) printf '%s' "$pid" ;;
  esac
}

# PostgreSQL does not run as root; its socket lives where its user can reach.
as_postgres() {
  if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

start_postgres() {
  local programs folder
  programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
  if [ -f "$run/postgres.folder" ] && [ -d "$(<"$run/postgres.folder")" ]; then
    folder=$(<"$run/postgres.folder")
  else
    folder=$(as_postgres mktemp -d "${TMPDIR:-/tmp}/foretoken-postgres.XXXXXX")
    (cd / && as_postgres "$programs/initdb" -D "$folder/data" -A trust \
      -U postgres --no-sync --locale=C -E UTF8) >"$run/postgres.log"
    printf '%s' "$folder" >"$run/postgres.folder"
  fi
  export FORETOKEN_POSTGRES_URL="host=$folder user=postgres dbname=postgres"
  (cd / && as_postgres "$programs/pg_ctl" -D "$folder/data" status) \
    >/dev/null 2>&1 && return
  (cd / && as_postgres "$programs/pg_ctl" -D "$folder/data" -w \
    -l "$folder/server.log" \
    -o "-c listen_addresses= -c shared_buffers=64MB -k $folder" start) \
    >>"$run/postgres.log"
}

stop_postgres() {
  local folder programs
  [ -f "$run/postgres.folder" ] || return 0
  folder=$(<"$run/postgres.folder")
  programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
  (cd / && as_postgres "$programs/pg_ctl" -D "$folder/data" -m fast -w stop) \
    >/dev/null 2>&1 || true
}

start_redis() {
  [ -z "$(pid_of redis)" ] || return 0
  redis-server --port 0 --unixsocket "$PWD/$run/redis.sock" \
    --unixsocketperm 700 --dir "$PWD/$run" --save '' --appendonly yes \
    --maxmemory 64mb --maxmemory-policy allkeys-lru \
    >"$run/redis.log" 2>&1 &
  printf '%s' $! >"$run/redis.pid"
}

# The n-grams of Python's standard library, published once.
publish_datastore() {
  "$bin/foretoken" crest list 2>"$run/crest-build.log" |
    grep "\"python-$vocabulary\"" >/dev/null && return
  "$bin/foretoken" crest build --corpus "$(python_library)" --suffix .py \
    --skip-invalid --tokenizer "$target" --max-n 4 --top 65536 \
    --name "python-$vocabulary" 2>"$run/crest-build.log"
}

# The same text as a static prior for the trie drafter.
make_prior() {
  [ -f "$run/python-$vocabulary.prior" ] ||
    "$bin/foretoken" prior build --corpus "$(python_library)" --tokenizer \
      "$target" --max-bytes 4000000 --out "$run/python-$vocabulary.prior" \
      2>"$run/prior-build.log" >/dev/null
}

# start NAME ARGUMENTS...: one service in the background, unless it runs.
start() {
  local name=$1
  shift
  [ -z "$(pid_of "$name")" ] || return 0
  "$bin/foretoken-$name" "$@" >>"$run/$name.log" 2>&1 &
  printf '%s' $! >"$run/$name.pid"
}

start_service() {
  case $1 in
    verifier) start verifier --model "$target" ;;
    draft-worker) start draft-worker --model "$draft" ;;
    trie-drafter)
      FORETOKEN_REDIS_URL="unix://$PWD/$run/redis.sock" \
        start trie-drafter --tokenizer "$target" \
        --prior "$run/python-$vocabulary.prior"
      ;;
    crest)
      start crest --datastore "python-$vocabulary=postgres" \
        --tokenizer "$target"
      ;;
    orchestrator)
      start orchestrator --verifiers 127.0.0.1:50051 \
        --draft-worker 127.0.0.1:50052 --trie-drafter 127.0.0.1:50053 \
        --crest 127.0.0.1:50054 --crest-datastore "python-$vocabulary" \
        --tokenizer "$target"
      ;;
  esac
}

# Each on its own port, and still the process that was started.
await_serving() {
  local i ports=(50051 50052 50053 50054 50050)
  for i in "${!services[@]}"; do
    if ! "$bin/foretoken" health --server "127.0.0.1:${ports[i]}" --wait 60 \
      >/dev/null || [ -z "$(pid_of "${services[i]}")" ]; then
      echo "${services[i]} does not serve; the end of its log:" >&2
      tail -n 5 "$run/${services[i]}.log" >&2
      return 1
    fi
  done
}

# stop NAME: asks it to end, and waits until it has.
stop() {
  local pid
  pid=$(pid_of "$1")
  rm -f "$run/$1.pid"
  [ -n "$pid" ] || return 0
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 400); do
    readlink "/proc/$pid/exe" >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
}
