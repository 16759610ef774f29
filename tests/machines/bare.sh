#!/usr/bin/env bash
# One command of a newcomer on a bare Debian. It is started in namespaces of its own, so that what
# it mounts and starts ends with it.
# bare.sh ROOT CACHE COMMAND CIRCUMSTANCE...
set -euo pipefail

root=$1 cache=$2 command=$3
shift 3

person=root
folder=/srv/headrace
limits=()
settings=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
# The way to the registries is this machine's.
while IFS= read -r setting; do
  settings+=("$setting")
done < <(env | grep -E '^(PIP_CERT|PIP_INDEX_URL|SSL_CERT_FILE|https?_proxy|no_proxy)=' || true)

mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
for circumstance in "$@"; do
  case $circumstance in
    user) person=newcomer && chroot "$root" useradd --create-home $person ;;
    space) folder="/srv/Mein Ordner für headrace" ;;
    noexec) mount -t tmpfs -o noexec,mode=1777 tmpfs "$root/tmp" ;;
    files) ulimit -Sn 1024 ;;
    lang) settings+=(LANG=C LC_ALL=C TZ=Asia/Kolkata) ;;
    core) limits=(taskset --cpu-list 0) ;;
    no-python) rm "$root"/usr/bin/python3* ;;
    no-venv) rm -r "$root"/usr/lib/python3*/ensurepip ;;
    home | no-cache) ;; # last of all, below
    *) echo "bare.sh knows no circumstance $circumstance" >&2 && exit 2 ;;
  esac
done

home=$(chroot "$root" getent passwd $person | cut -d : -f 6)
mv "$root/srv/checkout" "$root$folder"
if [[ " $* " == *" home "* ]]; then
  mount --bind "$root$home" "$root$home"
  mount -o remount,bind,ro "$root$home"
  [[ " $* " == *" no-cache "* ]] || settings+=(HEADRACE_CACHE=/var/cache/headrace)
  mkdir -p "$root/var/cache/headrace"
  chroot "$root" chown $person: /var/cache/headrace
else
  # What was fetched once is not fetched for every circumstance.
  mkdir -p "$cache/$person" "$root$home/.cache"
  mount --bind "$cache/$person" "$root$home/.cache"
  chroot "$root" chown $person: "$home/.cache"
fi
chroot "$root" chown -R $person: "$folder"

exec env --ignore-environment "${settings[@]}" HOME="$home" ${limits[@]+"${limits[@]}"} \
  chroot --userspec=$person:$person "$root" \
  sh -c 'cd "$1" && exec make "$2"' sh "$folder" "$command" </dev/null
