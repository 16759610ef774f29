#!/usr/bin/env bash
# Runs a command where Docker is: the daemon that answers, or one of our own that ends with the
# command. Where neither can be had, says so and runs the command all the same.
# docker/with-docker.sh COMMAND...
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
cache=${HEADRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headrace}
up_within_s=30

without() {
  echo "No Docker: $1. What needs containers does not run."
  exec "${@:2}"
}

end_daemon() {
  # Whoever ended the command may have ended the daemon as well.
  if docker info >/dev/null 2>&1; then
    docker ps --all --quiet | xargs --no-run-if-empty docker rm --force --volumes >/dev/null
    docker network prune --force >/dev/null
    docker volume prune --force >/dev/null
    # What a later build could still use stays a week.
    docker image prune --force --filter until=168h >/dev/null
  fi
  kill "$daemon" 2>/dev/null
  wait "$daemon"
  rm -rf "$run"
}

if docker info >/dev/null 2>&1; then
  exec "$@"
fi
if ! command -v dockerd >/dev/null; then
  "$here/install.sh" docker.io || without "it does not answer, and may not be installed here" "$@"
fi
if [[ $(id -u) -ne 0 ]]; then
  without "it does not answer, and only root may start it" "$@"
fi

run=$(mktemp -d)
mkdir -p "$cache"
give_up_at_s=$((SECONDS + up_within_s))
export DOCKER_HOST=unix://$run/docker.sock
# Images stay in the cache; containers do not. It ends when this script is killed, too.
# The file with its number keeps a second daemon away from the same images.
setpriv --pdeathsig TERM dockerd --host "$DOCKER_HOST" --data-root "$cache/docker" \
  --exec-root "$run/exec" --pidfile "$cache/docker.pid" >"$run/log" 2>&1 </dev/null &
daemon=$!
until docker info >/dev/null 2>&1; do
  if ! kill -0 "$daemon" 2>/dev/null || ((SECONDS > give_up_at_s)); then
    echo "dockerd cannot run here; it says:"
    tail -n 3 "$run/log"
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
    # The folder may be busy for a moment yet, and the command runs without Docker all the same.
    rm -rf "$run" || true
    unset DOCKER_HOST
    without "its daemon cannot run here" "$@"
  fi
  sleep 0.1
done
# Containers that cannot be removed, or a folder that is still busy, change nothing of how it ended.
trap 'ended=$?; end_daemon || true; exit "$ended"' EXIT
trap 'exit 130' INT TERM HUP
echo "Docker was not running: started it, until this command ends."
"$@"
