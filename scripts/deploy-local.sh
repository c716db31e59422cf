#!/usr/bin/env bash
# Deploys the `local` environment with the plain cdk CLI to the LocalStack that AWS_ENDPOINT_URL names.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${AWS_ENDPOINT_URL:?is not set; run this through: python -m emulator run -- scripts/deploy-local.sh}"
export CDK_DISABLE_CLI_TELEMETRY=1
cdk synth --quiet --no-notices -c env=local 'local/*'
cdk bootstrap --app cdk.out --no-notices --progress events aws://000000000000/us-east-1
cdk deploy --app cdk.out --no-notices --progress events --require-approval never --outputs-file cdk.out/outputs.json 'local/*'
