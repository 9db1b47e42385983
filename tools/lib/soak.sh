# Functions of tools/soak: fault injection into the services of
# tools/lib/services.sh, and the checks afterwards. Sourced by it, after
# services.sh.

# All of them, those that are killed, and those that are attacked.
servers=("${services[@]}" "$http_service")
parts=("${services[@]}" redis postgres)
[ "$over_http" -eq 0 ] || parts=("${servers[@]}" redis postgres)
attacked=(orchestrator "$http_service")
# Limits per process between two equal batches of requests without faults:
# growth of its anonymous memory (RssAnon; mapped files come and go), and of
# open files.
most_growth_kib=8192
most_new_files=8
# Requests after which a new verifier's KV pages have all been used.
least_batch=500
# Limit for the orchestrator while all others die around it.
most_growth_amid_kib=32768

declare -A blows=()  # "PART ACTION": how often
problems=0

problem() {
  problems=$((problems + 1))
  echo "BAD: $*"
}

# --- Reading

# Prints all metrics of a service.
metrics_of() {
  (
    exec 3<>"/dev/tcp/127.0.0.1/$(metrics_port_of "$1")" || exit 1
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
    cat <&3
  ) 2>/dev/null
}

# sum_of METRIC: sums it over its labels, reading metrics from standard input.
sum_of() {
  awk -v name="$1" '$1 == name || index($1, name "{") == 1 {sum += $2; n = 1}
                    END {if (n) printf "%.0f", sum; else print "missing"}'
}

memory_of() {
  awk '/^RssAnon/ {print $2}' "/proc/$(pid_of "$1")/status" 2>/dev/null || true
}
resident_of() {
  awk '/^VmRSS/ {print $2}' "/proc/$(pid_of "$1")/status" 2>/dev/null || true
}
# look_at PART MEMORY FILES GROWTH: compares memory (KiB) and open files with
# earlier values; memory may have grown by GROWTH.
look_at() {
  local memory_now files_now
  memory_now=$(memory_of "$1")
  files_now=$(files_of "$1")
  if [ -z "$memory_now" ] || [ -z "$2" ]; then
    problem "$1 is not there to be looked at"
    return 0
  fi
  printf '%-14s RSS %d KiB, own %d before and %d after; files %d and %d\n' \
    "$1" "$(resident_of "$1")" "$2" "$memory_now" "$3" "$files_now"
  [ $((memory_now - $2)) -le "$4" ] ||
    problem "$1 grew by $((memory_now - $2)) KiB"
  [ "$files_now" -le $(($3 + most_new_files)) ] ||
    problem "$1 has $files_now files open"
}
files_of() { (ls "/proc/$(pid_of "$1")/fd" 2>/dev/null || true) | wc -l; }

# Prints resources that an idle system still holds but should not.
held() {
  local part
  for part in "${servers[@]}"; do
    { metrics_of "$part" || true; } | awk -v part="$part" '
      $1 ~ /_(requests_running|streams|sessions|session_bytes|queue_length)$/ ||
      $1 ~ /_http_connections$/ {
        ++seen
        if ($2 != 0) print part ": " $1 " is " $2 ", want 0"
      }
      # Free pages include those kept for prefix reuse.
      $1 ~ /_kv_pages$/ {pages = $2}
      $1 ~ /_kv_pages_free$/ {free = $2}
      END {
        if (!seen) print part ": no metrics"
        if (free != pages) print part ": " free " pages are free of " pages
      }'
  done
}

# Waits until everything that requests held has been returned.
await_rest() {
  local left
  for _ in $(seq 300); do
    left=$(held)
    [ -n "$left" ] || return 0
    sleep 0.2
  done
  problem "after $1: $left"
}

# --- Fault injection

# Prints the pids of a part, including its children.
pids_of() {
  local pid
  pid=$(pid_of "$1")
  [ -n "$pid" ] || return 0
  cat "/proc/$pid/task/$pid/children" 2>/dev/null || true
  echo "$pid"
}

# attack PART: attackers of all kinds for a few seconds, in the background.
attack() {
  local command=("$bin/foretoken-attack" --only-attacks --seconds 3s --scale 16
    --server "$(address_of "$1")"
    --metrics "127.0.0.1:$(metrics_port_of "$1")"
    --attacker-token-file "$run/attackers.token")
  [ "$1" != "$http_service" ] ||
    command=(python3 -B tests/soak/http_attack.py --seconds 3 --scale 16
      --port "$FORETOKEN_HTTP_PORT" --key-file "$run/attackers.token"
      --seed "$RANDOM")
  nice "${command[@]}" >>"$run/attacks.out" 2>>"$run/attacks.err" &
  attackers_pid=$!
}
attackers_pid=''
attackers_run() {
  [ -n "$attackers_pid" ] && kill -0 "$attackers_pid" 2>/dev/null
}

# hurt PART kill|hang|restart|attack
hurt() {
  local pids
  pids=$(pids_of "$1")
  [ -n "$pids" ] || return 0
  [ "$1" != postgres ] || postgres_pids=$pids
  blows["$1 $2"]=$((${blows["$1 $2"]:-0} + 1))
  case $2 in
    kill) kill -9 "$(pid_of "$1")" 2>/dev/null || true ;;
    # On SIGTERM PostgreSQL would wait for its clients.
    restart) kill -"$([ "$1" = postgres ] && echo INT || echo TERM)" \
      "$(pid_of "$1")" 2>/dev/null || true ;;
    hang) kill -STOP $pids 2>/dev/null || true ;;
    attack) attack "$1" ;;
  esac
  hurt_now="$hurt_now $1:$2"
  echo "$(date +%T) $2 $1" >>"$run/blows.log"
}
hurt_now='' postgres_pids=''

# If init does not reap orphans (containers), the pid of a killed server looks
# alive to the next one. Its children are gone by then.
forget_postgres() {
  local pid folder
  folder=$(<"$run/postgres.folder")
  for pid in $postgres_pids; do
    for _ in $(seq 50); do
      is_part postgres "$pid" || break
      sleep 0.1
    done
    if is_part postgres "$pid"; then
      problem "PostgreSQL's process $pid does not go"
      return 0  # not bare: in a trap it gives the status from before the trap
    fi
  done
  rm -f "$folder/data/postmaster.pid" "$folder/.s.PGSQL.5432.lock"
}

# Resumes or restarts every part that was hurt, and waits until it is serving.
heal_all() {
  [ -z "$hurt_now" ] || echo "$(date +%T) heal$hurt_now" >>"$run/blows.log"
  local one part action
  for one in $hurt_now; do
    part=${one%:*} action=${one#*:}
    case $action in
      hang)
        kill -CONT $(pids_of "$part") 2>/dev/null || true
        continue
        ;;
      attack)
        wait "$attackers_pid" ||
          problem "attackers: $(tail -n 1 "$run/attacks.err")"
        attackers_pid=''
        continue
        ;;
    esac
    for _ in $(seq 600); do
      [ -n "$(pid_of "$part")" ] || break
      sleep 0.1
    done
    [ "$part" != postgres ] || forget_postgres
    for _ in $(seq 50); do
      start_part "$part" && break
      sleep 0.2
    done
  done
  for one in $hurt_now; do
    part=${one%:*}
    await_part "$part" || problem "$part is not back"
  done
  hurt_now=''
}

# blow PART ACTION: hurts a part, and sometimes a second one at the same time.
blow() {
  hurt "$1" "$2"
  sleep "$((RANDOM % 2)).$((RANDOM % 10))"
  if [ $((RANDOM % 4)) -eq 0 ]; then
    local other=${victims[RANDOM % ${#victims[@]}]}
    [ "$other" = "$1" ] || hurt "$other" kill
    sleep "0.$((RANDOM % 10))"
  fi
  heal_all
}

# --- Requests

# Runs the client in the background: client LOG ARGUMENTS...
client() {
  local log=$1
  shift
  local command=("$bin/foretoken-soak" --table
    --server "$(address_of orchestrator)"
    --server-token-file "$run/client.token" --constrained-share "$share")
  [ "$over_http" -eq 0 ] ||
    command=(python3 -B tests/soak/http_soak.py --port "$FORETOKEN_HTTP_PORT"
      --key-file "$run/client.token")
  "${command[@]}" --text "$texts" "$@" >"$run/$log.out" 2>"$run/$log.err" &
  client_pid=$!
}
client_pid=''
client_runs() { [ -n "$client_pid" ] && kill -0 "$client_pid" 2>/dev/null; }
# Waits for the client and prints its results.
client_ends() {
  wait "$client_pid" || problem "$1: $(tail -n 1 "$run/$1.err")"
  client_pid=''
  echo "--- $1"
  cat "$run/$1.out"
}

in_peace() {
  client "$1" --requests "$2" --max-tokens 48 --seed "$3"
  client_ends "$1"
}

# amid_blows LOG REQUESTS SEED ACTIONS PART...: applies each action to each part
# once, then random blows until all requests are done. `attack` is for those that
# have clients; without it, no attackers come later either.
amid_blows() {
  local log=$1 requests=$2 seed=$3 first=$4 part action sufferers
  shift 4
  victims=("$@")
  rm -f "$run/enough"
  client "$log" --requests "$requests" --until "$run/enough" --max-tokens 48 \
    --seed "$seed"
  until grep -qs '^references' "$run/$log.err" || ! client_runs; do
    sleep 0.1
  done
  for action in $first; do
    sufferers=("${victims[@]}")
    [ "$action" != attack ] || sufferers=("${attacked[@]}")
    for part in "${sufferers[@]}"; do blow "$part" "$action"; done
  done
  touch "$run/enough"
  local actions=(kill kill hang restart)
  while client_runs; do
    if [[ $first == *attack* ]] && [ $((RANDOM % 8)) -eq 0 ]; then
      blow "${attacked[RANDOM % ${#attacked[@]}]}" attack
    else
      blow "${victims[RANDOM % ${#victims[@]}]}" \
        "${actions[RANDOM % ${#actions[@]}]}"
    fi
    sleep "0.$((RANDOM % 10))"
  done
  client_ends "$log"
  await_rest "$log"
}

# Sends requests until all circuit breakers have closed again.
await_recovery() {
  local open
  for _ in $(seq 120); do
    open=$(metrics_of orchestrator | sum_of foretoken_breaker_state)
    [ "$open" != 0 ] || return 0
    client recovery --requests 8 --max-tokens 8
    wait "$client_pid" || problem "recovery: $(tail -n 1 "$run/recovery.err")"
    sleep 0.5
  done
  problem "breakers are still open: $(metrics_of orchestrator |
    grep ^foretoken_breaker_state)"
}

# missed_blows ACTIONS: checks that every part suffered each action.
missed_blows() {
  local part action
  for part in "${parts[@]}"; do
    for action in $1; do
      [ "${blows["$part $action"]:-0}" -gt 0 ] ||
        problem "no $action of $part"
    done
  done
  for part in "${attacked[@]}"; do
    [ "${blows["$part attack"]:-0}" -gt 0 ] || problem "no attack of $part"
  done
}

show_blows() {
  local part action
  printf '%-14s %8s %8s %8s %8s\n' part kill hang restart attack
  for part in "${servers[@]}" redis postgres; do
    printf '%-14s' "$part"
    for action in kill hang restart attack; do
      printf ' %8d' "${blows["$part $action"]:-0}"
    done
    echo
  done
}

# --- The two soaks

soak_chaos() {
  local requests=$1 seed=$(($2 * 10)) part batch
  RANDOM=$2
  batch=$((requests * 15 / 100 + 1))
  [ "$batch" -ge "$least_batch" ] || batch=$least_batch
  texts=$(ls "$(corpus)"/*.py | paste -sd,)
  local -A memory=() files=()
  in_peace warm-up $((requests / 10 + 1)) $((seed + 1))
  amid_blows all-parts-hurt $((requests * 3 / 10)) $((seed + 2)) \
    'kill hang restart attack' "${parts[@]}"
  await_recovery

  # Without attackers: of what they made a service allocate, malloc keeps now
  # more and now less (60 to 145 MiB), which would hide what lost peers leave.
  memory[orchestrator]=$(memory_of orchestrator)
  files[orchestrator]=$(files_of orchestrator)
  amid_blows orchestrator-spared $((requests * 3 / 10)) $((seed + 3)) \
    'kill hang' $(printf '%s\n' "${parts[@]}" | grep -vx orchestrator)
  await_recovery
  echo "--- the orchestrator while its peers die"
  look_at orchestrator "${memory[orchestrator]}" "${files[orchestrator]}" \
    "$most_growth_amid_kib"

  in_peace peace-1 "$batch" $((seed + 4))
  await_rest peace-1
  for part in "${servers[@]}" redis; do
    memory[$part]=$(memory_of "$part") files[$part]=$(files_of "$part")
  done
  in_peace peace-2 "$batch" $((seed + 5))
  await_rest peace-2

  echo "--- memory and open files over the last batch of requests"
  for part in "${servers[@]}" redis; do
    look_at "$part" "${memory[$part]}" "${files[$part]}" "$most_growth_kib"
  done
  echo "--- faults injected"
  show_blows
  missed_blows 'kill hang restart'
  verdict
}

# Kills every part once. Does not check memory, which would take longer.
soak_short() {
  RANDOM=$2
  texts=$(ls "$(corpus)"/*.py | paste -sd,)
  amid_blows all-parts-killed "$1" "$2" 'kill attack' "${parts[@]}"
  await_recovery
  in_peace peace 20 "$(($2 + 1))"
  await_rest peace
  show_blows
  missed_blows kill
  verdict
}

soak_lossless() {
  texts=$(ls "$(corpus)"/*.py "$(python_library)"/[a-e]*.py | paste -sd,)
  client lossless --lossless-tokens "$1"
  client_ends lossless
  await_rest lossless
  verdict
}

verdict() {
  if [ "$problems" -eq 0 ]; then
    echo "no problems"
  else
    echo "$problems problems"
    return 1
  fi
}
