#!/usr/bin/env bash
# Downloads the training text: Python sources of Debian packages, unpacked (not
# installed) into OUT/debian. usage: fetch_data.sh OUT
set -euo pipefail
out=${1:?usage: fetch_data.sh OUT}
packages=(
  libpython3.11-minimal libpython3.11-stdlib
  python3-sympy python3-django python3-numpy
)
mkdir -p "$out/deb" "$out/debian"
out=$(realpath "$out")
cd "$out/deb"
for package in "${packages[@]}"; do
  compgen -G "${package}_*.deb" >/dev/null || apt-get -qq download "$package"
  dpkg -x "${package}"_*.deb "$out/debian"
done
ls ./*.deb >"$out/packages.txt"
find "$out/debian" -name '*.py' -type f | wc -l
