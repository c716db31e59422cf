#!/usr/bin/env bash
# Deploys the `local` environment, or one of its stacks, with the plain cdk CLI to the LocalStack that AWS_ENDPOINT_URL
# names: scripts/deploy-local.sh [local/Messaging]
set -euo pipefail
cd "$(dirname "$0")/.."
: "${AWS_ENDPOINT_URL:?is not set; run this through: python -m emulator run -- scripts/deploy-local.sh}"
export CDK_DISABLE_CLI_TELEMETRY=1 PATH=$PWD/.venv/node/bin:$PWD/node_modules/.bin:$PWD/.venv/bin:$PATH
out=$(mktemp -d)  # its own folder: two deployments from one checkout do not meet
trap 'wait; rm -rf "$out"' EXIT
often=$PWD/scripts/poll-often.cjs
cdk=$(type -P cdk) || {
  printf 'deploy-local: there is no cdk in node_modules/.bin or on the PATH; make setup installs it\n' >&2
  exit 2
}
cdk() { node --require "$often" "$cdk" "$@" --no-notices; }

# Meanwhile: the toolkit's own stack needs none of the templates. Where no cdk.json is, cdk runs no app.
(cd "$out" && cdk bootstrap aws://000000000000/us-east-1) > "$out/bootstrap.log" 2>&1 &
bootstrap=$!
command cdk synth --quiet --no-notices -c env=local -o "$out/templates" 'local/*'
wait $bootstrap || { cat "$out/bootstrap.log" >&2; exit 1; }
cdk deploy --app "$out/templates" --progress events --require-approval never "${1:-local/*}"
