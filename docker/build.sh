#!/usr/bin/env bash
# Builds the images of the sidecar and of Spark, and the stand-in for Kafka's where that one cannot
# be pulled. Jars and wheels come from this machine, where they are fetched and checked as for any
# other target; while an image is built, only Debian's packages are. Needs `make spark` before.
# `docker/build.sh kafka` stops behind Kafka's image, and needs `make broker` alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kafka_version=4.3.1
official_kafka=apache/kafka:$kafka_version
standin_kafka=headrace/kafka:$kafka_version
sidecar=headrace/sidecar:latest
spark=headrace/spark:latest
java=headrace/java:17
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

# The locked versions for the image's Python; pip would judge by the one that runs it.
locked_versions() {
  sed -E '/^ +--hash/d; /^#/d; s/ \\$//' requirements.lock | $python -c '
import sys
from packaging.requirements import Requirement

image = {"python_version": sys.argv[1], "python_full_version": f"{sys.argv[1]}.0"}
for line in sys.stdin:
    locked = Requirement(line.strip())
    if locked.marker is None or locked.marker.evaluate(image):
        print(f"{locked.name}{locked.specifier}")
' $python_version
}

# The wheels of exactly the locked versions, for the image's Python, each with a locked hash; once.
locked_wheels() { # EXTRA
  local machine wheel fetched=$work/wheels-$1 made=$work/made
  wheels=$cache/wheels-$1-$(cat requirements.lock pyproject.toml | sha256sum | cut -c 1-12)
  [[ -d $wheels ]] && return
  mkdir -p "$made"
  if [[ $1 == spark ]]; then
    # It is published as source alone, whose hash is checked here, as when .venv was set up; pip
    # has kept the wheel that it made then. Debian's own Python has no bdist_wheel: it is made apart.
    awk '/^pyspark==/, !/\\$/' requirements.lock >"$work/source"
    $python -m pip wheel --quiet --disable-pip-version-check --use-pep517 --no-deps \
      --require-hashes --requirement "$work/source" --wheel-dir "$made"
  fi
  machine=$(uname -m | sed s/arm64/aarch64/)
  locked_versions >"$work/constraints"
  $python -m pip download --quiet --disable-pip-version-check --only-binary :all: \
    --python-version $python_version --implementation cp --dest "$fetched" \
    --platform "manylinux_2_28_$machine" --platform "manylinux2014_$machine" \
    --constraint "$work/constraints" --find-links "$made" "$(echo "$work"/own/*.whl)[$1]"
  rm "$fetched"/headrace-*
  for wheel in "$fetched"/*.whl; do
    if [[ ! -e $made/${wheel##*/} ]] && ! grep --quiet "sha256:$(sha256sum "$wheel" | cut -d ' ' -f 1)" requirements.lock; then
      echo "${wheel##*/} is not the file that requirements.lock names." >&2
      exit 1
    fi
  done
  mkdir -p "$cache"
  # Those of earlier locks; another checkout may still have use for new ones.
  find "$cache" -maxdepth 1 -name 'wheels-*' -mtime +7 -exec rm -rf {} +
  # Whole or not at all, also across file systems.
  cp -r "$fetched" "$wheels.$$" && mv "$wheels.$$" "$wheels"
  say "wheels of $(find "$wheels" -name '*.whl' | wc -l) libraries for $1"
}

if have $official_base; then
  base=$official_base
else
  base=$standin_base
  docker image inspect $base >/dev/null 2>&1 || bootstrap
fi
build $java docker/java "$base"

if have $official_kafka; then
  say "$official_kafka is here; no stand-in is needed"
else
  cp -r docker/kafka "$work/kafka"
  cp -r "$($python -c 'from headrace.services.broker.jars import kafka_jars; print(kafka_jars())')" \
    "$work/kafka/jars"
  build $standin_kafka "$work/kafka" $java
fi

if [[ ${1:-all} == kafka ]]; then
  exit
fi

# Where this build fails, no test shall take the image of an earlier one for it.
for image in $sidecar $spark; do
  if docker image inspect $image >/dev/null 2>&1; then
    docker tag $image "${image%:*}:previous"
    docker rmi $image >/dev/null
  fi
done
$python -m hatchling build --target wheel --directory "$work/own" >/dev/null 2>&1
for extra in sidecar spark; do
  cp -r docker/$extra "$work/$extra"
  locked_wheels $extra
  cp -r "$wheels" "$work/$extra/wheels"
  cp -r "$work/own" "$work/$extra/own"
done
cp -r docker/pipelines "$work/sidecar/pipelines"
build $sidecar "$work/sidecar" "$base"
cp -r docker/jobs "$work/spark/jobs"
$python -m headrace.spark_jobs --iceberg "$work/spark/connectors" >"$work/log" 2>&1 || {
  tail -n 20 "$work/log" >&2
  exit 1
}
build $spark "$work/spark" $java
