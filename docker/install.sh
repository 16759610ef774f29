#!/usr/bin/env bash
# Installs Debian packages, where this may be done without asking: as root, with apt-get.
# docker/install.sh PACKAGE|OR_ELSE...
set -euo pipefail

if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  exit 2
fi
echo "You are root, and apt-get is here: installing $*."
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The first that this distribution has of some that will do, or else the last.
known() {
  local name
  for name in ${1//|/ }; do
    [[ -z $(apt-cache show "$name" 2>/dev/null) ]] || break
  done
  echo "$name"
}

install() {
  local each packages=()
  apt-get update \
    && for each in "$@"; do packages+=("$(known "$each")"); done \
    && apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 "${packages[@]}"
}

# A machine that has just started may update itself meanwhile, and a network may fail for a moment.
if ! { install "$@" || { sleep 10; install "$@"; }; } >"$log" 2>&1 </dev/null; then
  echo "apt-get could not install $*; it says:" >&2
  tail -n 5 "$log" >&2
  exit 2
fi
