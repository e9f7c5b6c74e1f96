# shellcheck shell=bash
# Sourced by the scripts in tools/: where the project is, and how they talk.
# Talk goes to stderr, results to stdout, so that a caller can read a result.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

step() { printf '\n==> %s\n' "$*" >&2; }
say() { printf '    %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$1" >&2
  exit "${2:-1}"
}

# Builds go through ccache where it is installed; paths inside the project then hash alike in every clone.
compiler_launcher() {
  if command -v ccache >/dev/null 2>&1; then
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
    echo "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"
  fi
}

# Prints the version of the NVRTC library that is named, after compiling a one-line kernel with it.
nvrtc_probe() {
  python3 "$root/tools/nvrtc_probe.py" "$1"
}

# configure_and_build PRESET [TARGET...]: one preset of CMakePresets.json, all of it or some targets.
configure_and_build() {
  local preset=$1
  shift
  local launcher
  launcher=$(compiler_launcher)
  cmake --preset "$preset" ${launcher:+"$launcher"}
  cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"}
}
