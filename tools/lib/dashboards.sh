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

# yaml_quoted TEXT: as a YAML string.
yaml_quoted() { printf "'%s'" "${1//\'/\'\'}"; }

# Prints the configuration of Prometheus: the services and the gateway, each a job
# with the label `namespace` that the dashboards select by, and the chart's rules.
prometheus_config() {
  local part rules
  # Prometheus takes the path for a pattern.
  rules=$(sed 's/[][*?\\]/\\&/g' <<<"$PWD/helm/foretoken/rules/foretoken.yaml")
  echo "global: {scrape_interval: ${scrape_interval}s, scrape_timeout: ${scrape_interval}s," \
    "evaluation_interval: 15s}"
  echo "rule_files: [$(yaml_quoted "$rules")]"
  echo "scrape_configs:"
  for part in "${services[@]}" "$http_service"; do
    echo "- job_name: $part"
    echo "  honor_labels: true"
    echo "  static_configs:"
    echo "  - targets: ['127.0.0.1:$(metrics_port_of "$part")']"
    echo "    labels: {namespace: local}"
  done
}

# make_password: makes the password that Prometheus asks everybody for, once, and its
# bcrypt hash for --web.config.file. Without it, a page of a stranger could read
# Prometheus through a name that it resolves to 127.0.0.1.
make_password() (
  umask 077
  [ -s "$run/prometheus.password" ] && [ -s "$run/prometheus.web.yaml" ] && return
  head -c 24 /dev/urandom | base64 >"$run/prometheus.password"
  # A cheap hash: nobody guesses 24 random bytes, and every query is checked.
  python3 - "$run/prometheus.password" >"$run/prometheus.web.yaml" <<'PYTHON'
import ctypes, secrets, string, sys
with open(sys.argv[1], "rb") as file:
    password = file.read().strip()
digits = "./" + string.ascii_letters + string.digits
# The last digit of a salt has only two bits.
salt = "".join(secrets.choice(digits) for _ in range(21)) + secrets.choice(".Oeu")
crypt = ctypes.CDLL("libcrypt.so.1").crypt
crypt.restype = ctypes.c_char_p
hashed = crypt(password, f"$2b$05${salt}".encode())
if not hashed or not hashed.startswith(b"$2b$"):
    sys.exit("libcrypt.so.1 makes no bcrypt hashes")
print(f"basic_auth_users: {{foretoken: '{hashed.decode()}'}}")
PYTHON
)

# answers_200 PORT PATH [USER]: whether a server of this machine answers 200 within two
# seconds, to USER with the password of Prometheus.
answers_200() {
  local answer header=
  [ -z "${3:-}" ] || header="Authorization: Basic $(printf '%s:%s' "$3" \
    "$(<"$run/prometheus.password")" | base64 -w0)"$'\r\n'
  answer=$( (
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n%s\r\n' "$2" "$header" >&3
    IFS= read -r -t 2 line <&3 && printf '%s' "$line"
  ) 2>/dev/null) || return 1
  [[ $answer == *' 200 '* ]]
}

# await_dashboards NAME PORT PATH [USER]: waits until the process that was started
# listens and answers.
await_dashboards() {
  local name=$1 port=$2 deadline=$((SECONDS + 60)) pid
  shift
  until pid=$(pid_of "$name") && [ -n "$pid" ] && listens "$pid" "$port" &&
    answers_200 "$@"; do
    if has_ended "$name" || [ "$SECONDS" -ge "$deadline" ]; then
      fail_with "$name does not serve on port $port" "$run/$name.log" || return 1
    fi
    sleep 0.1
  done
}

# Starts what does not run, and says where the page is.
start_dashboards() {
  need_dashboards || return 1
  make_password || { echo "no password could be made for Prometheus" >&2; return 1; }
  prometheus_config >"$run/prometheus.yaml"
  if [ -z "$(pid_of prometheus)" ]; then
    # The origin of no page is `none`.
    in_background prometheus prometheus --config.file="$run/prometheus.yaml" \
      --log.level=warn --storage.tsdb.path="$run/prometheus.data" \
      --storage.tsdb.retention.time=7d --storage.tsdb.retention.size=512MB \
      --web.listen-address="127.0.0.1:$prometheus_port" \
      --web.config.file="$run/prometheus.web.yaml" \
      --web.cors.origin=none
  else
    kill -HUP "$(pid_of prometheus)"
  fi
  await_dashboards prometheus "$prometheus_port" /-/ready foretoken || return 1
  [ -n "$(pid_of dashboards)" ] ||
    in_background dashboards python3 -B tools/dashboards/serve.py \
      --listen "127.0.0.1:$dashboards_port" \
      --prometheus "http://127.0.0.1:$prometheus_port" \
      --password-file "$run/prometheus.password" \
      --scrape-interval "$scrape_interval"
  await_dashboards dashboards "$dashboards_port" / || return 1
  # Not on stdout, which is for the environment of clients.
  echo "dashboards: http://127.0.0.1:$dashboards_port/" >&2
}

# Stops both; what Prometheus has stored is kept.
stop_dashboards() {
  stop dashboards
  stop prometheus
}
