# Builds what a tool runs. Sourced from the project's root.

# with_progress LABEL COMMAND...: runs a command, on a terminal with a line that
# shows the latest of its output and the time, otherwise silently. What took
# longer than two seconds gets a line at its end, on stderr; a failure the end of
# its output.
with_progress() {
  local label=$1 log pid status=0 before=$SECONDS
  shift
  log=$(mktemp)
  "$@" >"$log" 2>&1 &
  pid=$!
  trap 'kill "$pid" 2>/dev/null; rm -f "$log"; exit 130' INT
  if [ -t 2 ]; then
    while kill -0 "$pid" 2>/dev/null; do
      printf '\r\033[K%s' "$(printf '%s, %d s  %s' "$label" \
        $((SECONDS - before)) "$(tail -n 1 "$log" | tr -cd '[:print:]')" |
        cut -c "1-$(($(tput cols 2>/dev/null || echo 80) - 1))")" >&2
      sleep 0.5
    done
    printf '\r\033[K' >&2
  fi
  wait "$pid" || status=$?
  trap - INT
  if [ "$status" -ne 0 ]; then
    echo "$label: failed" >&2
    grep -m 1 -A 20 '^FAILED' "$log" >&2 || tail -n 20 "$log" >&2
  elif [ $((SECONDS - before)) -gt 2 ]; then
    echo "$label: $((SECONDS - before)) s" >&2
  fi
  rm -f "$log"
  return "$status"
}

# build TARGET...: installs missing packages and builds targets of the release
# preset.
build() {
  # sudo may ask for a password.
  if [ "$(id -u)" -eq 0 ]; then
    with_progress "installing packages" tools/deps
  else
    tools/deps
  fi
  with_progress "configuring" cmake --preset release
  with_progress "building" cmake --build --preset release -j "$(nproc)" \
    --target "$@"
}
