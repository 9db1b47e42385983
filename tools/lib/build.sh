# Builds what a tool runs. Sourced from the project's root.

# build TARGET...: installs missing packages and builds targets of the release
# preset; prints errors only.
build() {
  tools/deps
  cmake --preset release >/dev/null
  cmake --build --preset release -j "$(nproc)" --target "$@" >/dev/null
}
