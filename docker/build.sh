#!/usr/bin/env bash
# Builds the sidecar's image, and the stand-in for Kafka's where that one cannot be pulled.
# Nothing is installed from a registry while an image is built: jars and wheels come from this
# machine, where they are fetched and checked as for any other target. Needs `make broker` before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kafka_version=4.3.1
official_kafka=apache/kafka:$kafka_version
standin_kafka=headrace/kafka:$kafka_version
sidecar=headrace/sidecar:latest
python_version=3.11
official_base=python:$python_version-slim-bookworm
standin_base=headrace/debian:bookworm
pull_within_s=60
python=.venv/bin/python
cache=${HEADRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headrace}
# There may be no buildx, and the old builder is enough.
export DOCKER_BUILDKIT=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { echo "images, $SECONDS s: $*"; }

# The official image, from here or from its registry; fails where there is none.
have() { docker image inspect "$1" >/dev/null 2>&1 || timeout $pull_within_s docker pull --quiet "$1" >/dev/null 2>&1; }

build() { # TAG CONTEXT BASE
  docker build --quiet --tag "$1" --build-arg "BASE_IMAGE=$3" "$2" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    exit 1
  }
  say "$1 ($(docker image inspect --format '{{.Size}}' "$1" | numfmt --to=iec))"
}

# A Debian with Python, made from packages alone.
bootstrap() {
  command -v debootstrap >/dev/null || docker/install.sh debootstrap
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm \
    "$work/debian" >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; exit 1; }
  tar -C "$work/debian" \
    --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' \
    --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
    -c . \
    | docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' - "$standin_base" >/dev/null
  rm -rf "$work/debian"
  say "$standin_base"
}

# The wheels of exactly the locked versions, for the image's Python, each with a locked hash; once.
locked_wheels() {
  local machine wheel
  wheels=$cache/wheels-$(cat requirements.lock pyproject.toml | sha256sum | cut -c 1-12)
  [[ -d $wheels ]] && return
  machine=$(uname -m | sed s/arm64/aarch64/)
  sed -E '/^ +--hash/d; s/ \\$//' requirements.lock >"$work/constraints"
  $python -m pip download --quiet --disable-pip-version-check --only-binary :all: \
    --python-version $python_version --implementation cp --dest "$work/wheels" \
    --platform "manylinux_2_28_$machine" --platform "manylinux2014_$machine" \
    --constraint "$work/constraints" "$(echo "$work"/sidecar/own/*.whl)[sidecar]"
  rm "$work"/wheels/headrace-*
  for wheel in "$work"/wheels/*.whl; do
    if ! grep --quiet "sha256:$(sha256sum "$wheel" | cut -d ' ' -f 1)" requirements.lock; then
      echo "${wheel##*/} is not the file that requirements.lock names." >&2
      exit 1
    fi
  done
  mkdir -p "$cache"
  # Whole or not at all, also across file systems.
  cp -r "$work/wheels" "$wheels.$$" && mv "$wheels.$$" "$wheels"
  say "wheels of $(find "$wheels" -name '*.whl' | wc -l) libraries"
}

if have $official_base; then
  base=$official_base
else
  base=$standin_base
  docker image inspect $base >/dev/null 2>&1 || bootstrap
fi

if have $official_kafka; then
  say "$official_kafka is here; no stand-in is needed"
else
  cp -r docker/kafka "$work/kafka"
  cp -r "$($python -c 'from services.broker.jars import kafka_jars; print(kafka_jars())')" \
    "$work/kafka/jars"
  build $standin_kafka "$work/kafka" "$base"
fi

# Where this build fails, no test shall take the image of an earlier one for it.
if docker image inspect $sidecar >/dev/null 2>&1; then
  docker tag $sidecar "${sidecar%:*}:previous"
  docker rmi $sidecar >/dev/null
fi
cp -r docker/sidecar "$work/sidecar"
cp -r docker/pipelines "$work/sidecar/pipelines"
$python -m hatchling build --target wheel --directory "$work/sidecar/own" >/dev/null 2>&1
locked_wheels
cp -r "$wheels" "$work/sidecar/wheels"
build $sidecar "$work/sidecar" "$base"
