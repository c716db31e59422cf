#!/usr/bin/env bash
# Builds the tasks' image without Docker, a daemon and a registry, starts it and stops it: scripts/image.sh [TAG]
#
# The base is Debian trixie's Python 3.13 by debootstrap, in place of the registry's image that the Dockerfile names; it
# is kept as an image, so that the next build begins with it. BUILD_CERTIFICATES is a file with the authorities that pip
# trusts while it builds, where a proxy needs it. Needs root, and: apt-get install buildah debootstrap crun
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1:-sluice-worker:built-here}
base=localhost/sluice-base:trixie
for tool in buildah debootstrap; do
  type -P "$tool" > /dev/null || {
    printf 'image: there is no %s; apt-get install buildah debootstrap crun\n' "$tool" >&2
    exit 2
  }
done
[ "$(id -u)" = 0 ] || { printf 'image: debootstrap makes a root file system; run this as root\n' >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BUILDAH_ISOLATION=chroot

make_base() {
  debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates trixie "$work/system" \
    "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" > "$work/debootstrap.log" || { tail "$work/debootstrap.log" >&2; exit 2; }
  rm -rf "$work"/system/usr/lib/python3*/EXTERNALLY-MANAGED "$work"/system/var/cache/apt/archives/*.deb \
    "$work"/system/var/lib/apt/lists/* "$work"/system/usr/share/{doc,man,locale}
  ln -s python3 "$work/system/usr/bin/python"
  local container
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$work/system" / > /dev/null
  buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
  buildah commit --quiet --rm "$container" "$base" > /dev/null
}

seconds() { SECONDS=0; "$@"; printf '%-12s %4s s\n' "$1" "$SECONDS"; }

build() {
  local trusted=()
  if [ -n "${BUILD_CERTIFICATES:-}" ]; then
    trusted=(--volume "$BUILD_CERTIFICATES:/etc/ssl/certs/ca-certificates.crt:ro")
  fi
  buildah build --quiet --layers --network host --pull-never --build-arg "BASE=$base" --tag "$tag" "${trusted[@]}" . > "$work/id"
}

# What a task is given by its stack.
write_settings() {
  .venv/bin/python -c 'import sys
from sluice.declaration import load_declaration, task_settings as of
local = load_declaration().environment("local")
consumers = {consumer.name: consumer for consumer in local.consumers}
print(of.render(of.task_environment(local, consumers.get(sys.argv[1]), local.topics[0])))' "$1" > "$work/settings-$1"
}

# Orders are placed, relayed and consumed by tasks of the image, with SNS and SQS in memory; each effect is there once.
# The containers' root is read-only but for /dev/shm and /tmp, and their user has no capability: as on ECS.
start() {
  local code=0
  container=$(buildah from --pull-never "$tag")
  trap 'buildah umount "$container" > /dev/null; buildah rm "$container" > /dev/null; rm -rf "$work"' EXIT
  root=$(buildah mount "$container")
  export root work
  for name in relay billing shipping audit; do write_settings "$name"; done
  cat > "$work/in" <<'END'
set -euo pipefail
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/shm" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for device in null urandom; do touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"; done
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
task() { # NAME COMMAND: a task of that consumer, or of the relay
  local name=$1
  shift
  exec env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 SLUICE_ENV=local \
    SLUICE_TASK_SETTINGS="$(< "$work/settings-$name")" SLUICE_CONSUMER="$name" SLUICE_ALIVE_FILE="/dev/shm/alive-$name" \
    SLUICE_TOPIC_ARN=arn:aws:sns:us-east-1:000000000000:sluice-local-events.fifo SLUICE_DSN=sqlite:////dev/shm/sluice.db \
    AWS_ENDPOINT_URL="$AWS_ENDPOINT_URL" AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1 \
    chroot "$root" setpriv --reuid 10001 --regid 10001 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
    sh -c 'cd /app && exec "$@"' sh "$@"
}
(task relay sh -c '! touch /app/new 2> /dev/null && [ "$(id -u)" = 10001 ] && grep -q "^CapBnd:.*0000000000000000" /proc/self/status')
(task relay python -m sluice schema apply --migrate 'python -m examples.services init')
(task relay python -m examples.orders init)
(task relay python -m examples.orders run --count 40 --groups 5 --seed 1)
task relay python -m sluice relay > "$work/relay.log" 2>&1 & relay=$!
task billing python -m sluice worker > "$work/billing.log" 2>&1 & billing=$!
for consumer in shipping audit; do (task "$consumer" python -m sluice worker --until-idle 5) > "$work/$consumer.log" 2>&1; done
(task relay python -m examples.services check)
for name in relay billing; do (task "$name" python -m sluice alive); done
kill -TERM $relay $billing
wait $relay && wait $billing
grep -q '"stopped"' "$work/relay.log"
END
  .venv/bin/sluice simulator run -- bash -euc \
    '.venv/bin/sluice topology apply > /dev/null && exec unshare --mount --pid --fork --kill-child bash "$work/in"' || code=$?
  [ "$code" = 0 ] && return
  tail -n 20 "$work"/*.log >&2
  printf 'image: a task of the image ended with %s; above is what it printed\n' "$code" >&2
  exit 2
}

buildah inspect --type image "$base" > /dev/null 2>&1 || seconds make_base
seconds build
seconds start
buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}' "$tag"
