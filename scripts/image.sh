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

# The container's root is read-only but for /dev/shm and /tmp, and its user has no capability: as on ECS.
start() {
  local root settings code=0
  container=$(buildah from --pull-never "$tag")
  trap 'buildah umount "$container" > /dev/null; buildah rm "$container" > /dev/null; rm -rf "$work"' EXIT
  root=$(buildah mount "$container")
  settings=$(.venv/bin/python -c 'from sluice.declaration import load_declaration, task_settings as of
local = load_declaration().environment("local")
print(of.render(of.task_environment(local, None, local.topics[0])))')
  cat > "$work/in" <<END
set -euo pipefail
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/shm" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for device in null urandom; do touch "$root/dev/\$device" && mount --bind "/dev/\$device" "$root/dev/\$device"; done
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
task=(env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 SLUICE_ENV=local
  SLUICE_TASK_SETTINGS='$settings' SLUICE_TOPIC_ARN=arn:aws:sns:us-east-1:000000000000:sluice-local-events.fifo
  SLUICE_DSN=sqlite:////dev/shm/sluice.db SLUICE_ALIVE_FILE=/dev/shm/alive AWS_ENDPOINT_URL=http://127.0.0.1:9
  AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1
  chroot "$root" setpriv --reuid 10001 --regid 10001 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs
  sh -c 'cd /app && exec "\$@"' sh)
"\${task[@]}" sh -c '! touch /app/new 2> /dev/null && [ "\$(id -u)" = 10001 ] && grep -q "^CapBnd:.*0000000000000000" /proc/self/status'
"\${task[@]}" python -m sluice schema apply --migrate 'python -m examples.services init'
"\${task[@]}" python -m sluice relay > "$work/relay.log" 2>&1 & relay=\$!
for _ in {1..60}; do grep -q '"leading"' "$work/relay.log" && break; sleep 1; done
"\${task[@]}" python -m sluice alive
kill -TERM \$relay
wait \$relay || { cat "$work/relay.log" >&2; exit 1; }
grep -q '"stopped"' "$work/relay.log"
END
  unshare --mount --pid --fork --kill-child bash "$work/in" || code=$?
  [ "$code" = 0 ] || { printf 'image: schema, relay or its health check ended with %s, as printed above\n' "$code" >&2; exit 2; }
}

buildah inspect --type image "$base" > /dev/null 2>&1 || seconds make_base
seconds build
seconds start
buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}' "$tag"
