# Builds what a tool runs. Sourced from the project's root.

# The five services and the command line.
service_targets=(foretoken foretoken-verifier foretoken-draft-worker
  foretoken-trie-drafter foretoken-crest foretoken-orchestrator)

# build TARGET...: installs missing packages and builds targets of the release
# preset; prints errors only.
build() {
  tools/deps
  cmake --preset release >/dev/null
  cmake --build --preset release -j "$(nproc)" --target "$@" >/dev/null
}
