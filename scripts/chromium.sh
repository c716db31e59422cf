#!/usr/bin/env bash
# Print the Chromium that `make test-pages` drives; install Debian's first where there is none and we may.
set -euo pipefail

find_chromium() {
  local candidate
  for candidate in "${SLUICE_CHROMIUM:-}" chromium chromium-browser google-chrome; do
    if [ -n "$candidate" ] && command -v "$candidate"; then return; fi
  done
  return 1
}

install_chromium() {
  local as_root=()
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    as_root=(sudo -n)
  fi
  printf 'setup: installing chromium with apt\n' >&2
  "${as_root[@]}" apt-get update -qq >&2 &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
}

find_chromium && exit
install_chromium || true
find_chromium && exit
printf '%s\n' "no Chromium found, and none could be installed: apt-get install chromium (Debian), or name one: SLUICE_CHROMIUM=/path/to/chromium make test-pages" >&2
exit 1
