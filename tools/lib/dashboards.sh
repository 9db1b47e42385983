# Functions that show the chart's dashboards: a Prometheus that scrapes the services
# of tools/lib/services.sh, and the page of tools/dashboards. Both listen on the
# loopback interface alone. Sourced by tools/up and tools/down, after services.sh.
#
# Variables to set before sourcing:
#   FORETOKEN_PROMETHEUS_PORT   Prometheus (9106)
#   FORETOKEN_DASHBOARDS_PORT   the page (8081)
#   FORETOKEN_SCRAPE_INTERVAL   whole seconds between two scrapes (2)

prometheus_port=${FORETOKEN_PROMETHEUS_PORT:-9106}
dashboards_port=${FORETOKEN_DASHBOARDS_PORT:-8081}
scrape_interval=${FORETOKEN_SCRAPE_INTERVAL:-2}

# need_dashboards: says what is missing, before anything starts.
need_dashboards() {
  local program
  for program in prometheus python3; do
    command -v "$program" >/dev/null && continue
    echo "no $program here: tools/deps --deploy installs it" >&2
    return 1
  done
}

# Prints the configuration of Prometheus: the services and the gateway, each a job
# with the label `namespace` that the dashboards select by, and the chart's rules.
prometheus_config() {
  local part
  echo "global: {scrape_interval: ${scrape_interval}s, scrape_timeout: ${scrape_interval}s," \
    "evaluation_interval: 15s}"
  echo "rule_files: ['$PWD/helm/foretoken/rules/foretoken.yaml']"
  echo "scrape_configs:"
  for part in "${services[@]}" "$http_service"; do
    echo "- job_name: $part"
    echo "  honor_labels: true"
    echo "  static_configs:"
    echo "  - targets: ['127.0.0.1:$(metrics_port_of "$part")']"
    echo "    labels: {namespace: local}"
  done
}

# Prints the page's pid if it runs. Its program is Python, so its arguments count.
page_pid() {
  local pid=
  [ ! -f "$run/dashboards.pid" ] || read -r pid <"$run/dashboards.pid" || true
  tr '\0' '\n' 2>/dev/null <"/proc/${pid:-none}/cmdline" |
    grep -qx "tools/dashboards/serve.py" || return 0
  printf '%s' "$pid"
}

# is_ready PORT PATH: whether a server of this machine answers 200.
is_ready() {
  local answer
  answer=$( (
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$2" >&3
    head -n 1 <&3
  ) 2>/dev/null) || return 1
  [[ $answer == *' 200 '* ]]
}

# await_dashboards NAME PORT PATH PID...: waits until it answers, while the command
# PID... prints the pid of the process that was started.
await_dashboards() {
  local name=$1 port=$2 path=$3 begin=$SECONDS
  shift 3
  until is_ready "$port" "$path" && [ -n "$("$@")" ]; do
    # A process has two seconds to become its program.
    if [ $((SECONDS - begin)) -ge 60 ] ||
      { [ $((SECONDS - begin)) -gt 2 ] && [ -z "$("$@")" ]; }; then
      echo "$name does not serve; the end of its log:" >&2
      tail -n 5 "$run/$name.log" >&2
      return 1
    fi
    sleep 0.1
  done
}

# Starts what does not run, and says where the page is.
start_dashboards() {
  need_dashboards || return 1
  prometheus_config >"$run/prometheus.yaml"
  if [ -z "$(pid_of prometheus)" ]; then
    in_background prometheus prometheus --config.file="$run/prometheus.yaml" \
      --log.level=warn --storage.tsdb.path="$run/prometheus.data" \
      --storage.tsdb.retention.time=7d --storage.tsdb.retention.size=512MB \
      --web.listen-address="127.0.0.1:$prometheus_port"
  else
    kill -HUP "$(pid_of prometheus)"
  fi
  await_dashboards prometheus "$prometheus_port" /-/ready pid_of prometheus || return 1
  [ -n "$(page_pid)" ] ||
    in_background dashboards python3 -B tools/dashboards/serve.py \
      --listen "127.0.0.1:$dashboards_port" \
      --prometheus "http://127.0.0.1:$prometheus_port" \
      --scrape-interval "$scrape_interval"
  await_dashboards dashboards "$dashboards_port" / page_pid || return 1
  # Not on stdout, which is for the environment of clients.
  echo "dashboards: http://127.0.0.1:$dashboards_port/" >&2
}

# Stops both; what Prometheus has stored is kept.
stop_dashboards() {
  local pid
  pid=$(page_pid)
  [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
  for _ in $(seq 100); do
    [ -n "$(page_pid)" ] || break
    sleep 0.1
  done
  rm -f "$run/dashboards.pid"
  stop prometheus
}
