#!/usr/bin/env bash
# Fetches the training text: Python sources of Debian packages, unpacked (not
# installed) below OUT/debian.   usage: fetch_data.sh OUT
set -euo pipefail
out=${1:?usage: fetch_data.sh OUT}
packages=(
  libpython3.11-minimal libpython3.11-stdlib libpython3.11-testsuite
  python3-sympy python3-django python3-numpy python3-scipy python3-pandas
  python3-matplotlib python3-networkx python3-sqlalchemy python3-twisted
  python3-sklearn python3-skimage python3-statsmodels
)
mkdir -p "$out/deb" "$out/debian"
out=$(realpath "$out")
cd "$out/deb"
for package in "${packages[@]}"; do
  compgen -G "${package}_*.deb" >/dev/null || apt-get -qq download "$package"
  dpkg -x "${package}"_*.deb "$out/debian"
done
dpkg-query -W -f='' 2>/dev/null || true
ls ./*.deb >"$out/packages.txt"
find "$out/debian" -name '*.py' -type f | wc -l
