# Sourced by the scripts of this folder, which set $scratch.
#
# port_of NAME: the port of the HTTP API whose log is $scratch/NAME.log, once it
# listens.
port_of() {
  local waits=0
  until [[ $(<"$scratch/$1.log") =~ (HTTP|listening)\ on\ 127\.0\.0\.1:([0-9]+) ]]; do
    ((++waits < 600)) || { tail "$scratch"/*.log >&2; return 1; }
    sleep 0.1
  done
  echo "${BASH_REMATCH[2]}"
}
