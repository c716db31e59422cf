#!/usr/bin/env bash
# The main job, inside `python -m emulator run`: deploy, contracts, orders from outbox to services, scaling, load, judge.
# What fails does not skip what follows; all of it counts. Exit code: that of the load test, or 1 when only others failed.
set -uo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n=== %s\n' "$*"; }
mkdir -p runs

step "1/5  cdk deploy: topic, queues, DLQs, network, services, alarms (log: runs/deploy.log)"
if ! scripts/deploy-local.sh > runs/deploy.log 2>&1; then
  tail -20 runs/deploy.log >&2
  echo "demo: the deployment failed, see runs/deploy.log" >&2
  exit 2
fi
grep -E 'Arn = ' runs/deploy.log

step "2/5  contracts: the core of what SQS and SNS promise, and all of what is deployed ('make contract': everything)"
pytest --quiet -n "${WORKERS:-8}" contract_tests -m "(core or deployment) and not slow"
contracts=$?

step "3/5  orders: 200 transactions, outbox, relay, topic, queues, three services with an inbox each (log: runs/orders.log)"
scripts/orders.sh > runs/orders.log 2>&1
orders=$?
tail -1 runs/orders.log

step "4/5  scaling: a burst wakes real workers from none, the deployed policy starts and stops them (log: runs/scaling.log)"
(
  export SLUICE_DECLARATION=examples/scaling/environments.py
  scripts/deploy-local.sh local/Messaging && sluice load run scale --env local
) > runs/scaling.log 2>&1
scaling=$?
grep -A3 'billing: tasks' runs/scaling.log

step "5/5  load test: profile ${1:-smoke}"
sluice load run "${1:-smoke}" --env local
load=$?

step "result"
echo "contracts: $([ $contracts = 0 ] && echo kept || echo "BROKEN (exit code $contracts)")"
echo "orders:    $([ $orders = 0 ] && echo "once and in order" || echo "BROKEN (exit code $orders)")"
echo "load test: $([ $load = 0 ] && echo valid || { [ $load = 1 ] && echo INVALID || echo "unknown (exit code $load)"; })"
echo "scaling:   $([ $scaling = 0 ] && echo "valid through scale-out and scale-in" || echo "BROKEN (exit code $scaling)")"
latest=$(find runs -mindepth 1 -maxdepth 1 -type d -newer runs/deploy.log | sort | tail -1)
echo "artefacts: ${latest:-none} (verdict.json, summary.md, history/, journals/)"
[ $((contracts + orders + scaling)) = 0 ] || [ $load = 3 ] || exit 1
exit $load
