#!/usr/bin/env bash
# Installs the packages needed to build lariat on Debian 12 or Ubuntu 24.04 (as root, or with sudo). The only list of packages.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config       # the build
  nlohmann-json3-dev libcli11-dev libfmt-dev  # JSON, command line, text
  libsentencepiece-dev libpcre2-dev libutf8proc-dev  # tokenizers
  libedit-dev  # line editing in chat
  libboost-dev                           # HTTP (headers)
  libhwy-dev                             # vectors
  libgtest-dev libbenchmark-dev          # tests and kernel benchmarks
  python3-dev python3-pip python3-venv python3-numpy python3-pytest  # the Python package and its tests
)
[ "${1:-}" = "--ci" ] && packages+=(clang-format clang-tidy clang clang-19 libclang-rt-dev ccache python3 gcovr libopenmpi-dev openmpi-bin procps
  pyflakes3 python3-pandas python3-matplotlib shellcheck chromium)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install.sh: run as root, or install sudo; missing: ${missing[*]}" >&2; exit 1; }
  sudo=sudo
fi
echo "installing: ${missing[*]}"
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
