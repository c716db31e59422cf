#!/bin/sh
# Trades, publishes, and has billing handled by its Lambda function and the others by workers: on a simulator,
# SLUICE_DECLARATION=examples/functions/environments.py sluice simulator run -- sh examples/functions/run.sh
set -e
sluice topology apply
python -m examples.orders init
python -m examples.services init
python -m examples.orders run --count 60 --groups 6
sluice relay --until-empty
sluice lambda local --consumer billing --until-idle 5 --start-timeout 60
sluice worker --consumer shipping --until-idle 2
sluice worker --consumer audit --until-idle 2
python -m examples.services check
