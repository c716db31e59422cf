#!/usr/bin/env bash
# The example from end to end, on the deployed `local` environment: a shop trades, its outbox is relayed, three services
# consume; then each effect has to be there once and in order. Ends with what the check says.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)  # its own: two runs from one checkout do not meet
trap 'rm -rf "$folder"' EXIT
export SLUICE_DSN="sqlite:///$folder/orders.db"

python -m examples.orders init
python -m examples.services init
python -m examples.orders run --count 200 --groups 10 --rollbacks 0.2 --seed 1
sluice relay --until-empty
workers=()
for consumer in billing shipping audit; do
  sluice worker --consumer "$consumer" --until-idle 5 &
  workers+=($!)
done
for worker in "${workers[@]}"; do wait "$worker"; done
sluice inbox status --consumer billing
python -m examples.orders check
python -m examples.services check
