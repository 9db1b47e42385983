#!/usr/bin/env bash
# image_build.sh: what tools/image/build asks of docker, podman and kind, which are
# scripts of this test that write down their arguments.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
version=$(awk '$1 == "version:" { print $2 }' helm/foretoken/Chart.yaml)

# A PATH without any docker, podman or kind of this machine.
mkdir "$scratch/bin"
for program in bash dirname awk mktemp rm sed cat; do
  ln -s "$(command -v "$program")" "$scratch/bin/$program"
done
install_fake() {
  printf '#!/usr/bin/env bash\necho "%s $*" >>"%s"\n' "$1" "$scratch/calls" \
    >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}
# build STATUS ARGUMENT...
build() {
  local want=$1 status=0
  shift
  rm -f "$scratch/calls"
  env -u CONTAINER_ENGINE PATH="$scratch/bin" tools/image/build "$@" \
    >"$scratch/said" 2>&1 || status=$?
  [ "$status" = "$want" ] || fail "build $*: exit $status, want $want: $(<"$scratch/said")"
}
# calls LINE...: what was called, where `*` stands for anything.
calls() {
  local lines i
  mapfile -t lines <"$scratch/calls"
  [ ${#lines[@]} = $# ] || fail "calls: ${lines[*]}"
  for ((i = 0; i < $#; ++i)); do
    local pattern=${*:i+1:1}
    # shellcheck disable=SC2053
    [[ ${lines[i]} == $pattern ]] || fail "called: ${lines[i]}, want $pattern"
  done
}
says() { grep -qF -- "$1" "$scratch/said" || fail "does not say '$1': $(<"$scratch/said")"; }

build 1
says "neither docker nor podman is installed"
install_fake podman
build 0
calls "podman build -f tools/image/Dockerfile --ignorefile tools/image/Dockerfile.dockerignore -t docker.io/library/foretoken:$version ."
says "helm install foretoken helm/foretoken -n foretoken --create-namespace"
says "-f helm/trial.yaml --wait"
install_fake docker
build 0 -- --build-arg BUILD_IMAGE=cuda
calls "docker build -f tools/image/Dockerfile -t docker.io/library/foretoken:$version --build-arg BUILD_IMAGE=cuda ."
build 1 --kind
says "kind is not installed"
[ ! -e "$scratch/calls" ] || fail "builds for a kind that is not there"
install_fake kind
build 0 --kind
calls "docker build *" "docker save -o * docker.io/library/foretoken:$version" \
  "kind load image-archive * --name kind"
build 0 --kind mine
calls "docker build *" "docker save *" "kind load image-archive * --name mine"
build 0 --push images.example/team/foretoken
calls "docker build * -t images.example/team/foretoken:$version *" \
  "docker push images.example/team/foretoken:$version"
says "--set image.repository=images.example/team/foretoken --wait"
build 2 --push
build 2 --tag
says "no such option"

# The name that nodes look for is the chart's, in full.
grep -q "^  repository: foretoken$" helm/foretoken/values.yaml ||
  fail "the chart's image has another name"
[ "$(awk '$1 == "appVersion:" { print $2 }' helm/foretoken/Chart.yaml)" = "$version" ] ||
  fail "the chart's image has another version"
echo "PASSED"
