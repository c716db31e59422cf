#!/usr/bin/env bash
# Deploys the `local` environment, or one of its stacks, with the plain cdk CLI to the LocalStack that AWS_ENDPOINT_URL
# names: scripts/deploy-local.sh [local/Messaging]
set -euo pipefail
cd "$(dirname "$0")/.."
: "${AWS_ENDPOINT_URL:?is not set; run this through: python -m emulator run -- scripts/deploy-local.sh}"
export CDK_DISABLE_CLI_TELEMETRY=1
out=$(mktemp -d)  # its own folder: two deployments from one checkout do not meet
trap 'rm -rf "$out"' EXIT
cdk synth --quiet --no-notices -c env=local -o "$out" 'local/*'
cdk bootstrap --app "$out" --no-notices --progress events aws://000000000000/us-east-1
cdk deploy --app "$out" --no-notices --progress events --require-approval never "${1:-local/*}"
