"""Fixtures and options of a contract run: the target, which all workers share, and the promise of each test.

`--prove` runs each test once under each saboteur of its promise, and inverts the result: a test that fails is proven,
a test that still passes has failed.
"""

import importlib
import itertools
import os
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract_tests import options
from contract_tests.byo_queues import ByoQueueResources, ByoQueues
from contract_tests.deployment.environment import DeployedEnvironment, require
from contract_tests.promises import CORE, PROMISES, Promiser
from contract_tests.proving import breaking, failures, relevance, results
from contract_tests.resources import Resources
from contract_tests.targets import aws, binding
from sluice import deviations
from sluice.clock import waiting_on
from sluice.declaration import Environment, is_declared, load_declaration
from sluice.errors import EndpointError, MessagingError
from sluice.localstack import MODIFIED
from sluice.saboteurs import sabotage

_SUITE = Path(__file__).resolve().parent
_MUTANTS = "tests.mutants.plugin"
_ENDPOINT = "SLUICE_CONTRACT_ENDPOINT"
_TARGET = "SLUICE_CONTRACT_TARGET"
_RUN = "SLUICE_CONTRACT_RUN"
_UNUSABLE = "SLUICE_CONTRACT_UNUSABLE"
_PATIENCE_SECONDS = 20.0
_PATIENCE_SECONDS_SABOTAGED = 4.0
_PATIENCE_SECONDS_DEVIATING = 8.0
_emulator = pytest.StashKey[ExitStack]()
_notice = pytest.StashKey[str]()
_byo_queues = pytest.StashKey[tuple[ByoQueues, frozenset[str]]]()
_byo_tests = itertools.count(1)
_results = pytest.StashKey[results.Plugin]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the contract run."""
    group = parser.getgroup("contracts")
    options.add_options(group)
    group.addoption(
        "--mutants",
        action="store_true",
        help="run every promise against every rule mutant of the simulator's model; in a checkout of Sluice only",
    )
    group.addoption(
        "--relevance", action="store_true", help="count which promises each saboteur turns red on the simulator"
    )
    group.addoption(
        "--results", type=Path, metavar="FILE", help="write what became of every promise as JSON, whatever it was"
    )
    group.addoption(
        "--expect",
        type=Path,
        metavar="FILE",
        help="a file of --results from an earlier run: fail on promises whose status is another one than there",
    )
    group.addoption(
        "--env", metavar="NAME", default="local", help="the deployed environment whose contracts are verified"
    )
    group.addoption(
        "--declaration",
        type=Path,
        metavar="FILE",
        help="where it is declared (default: $SLUICE_DECLARATION, else environments.py)",
    )
    group.addoption(
        "--prove", action="store_true", help="run every promise under its saboteurs and expect it to turn red"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start the target once, in the controlling process, before any worker looks for it."""
    config.addinivalue_line("markers", "promise(id): the promise this contract test verifies")
    config.addinivalue_line("markers", "core: one of the promises everybody should be able to recite")
    config.addinivalue_line("markers", "deployment: verifies a deployed environment, which it changes and leaves clean")
    config.addinivalue_line("markers", "functions: verifies the Lambda functions of a deployed environment")
    config.addinivalue_line("markers", "slow: waits for what takes AWS minutes, or needs LocalStack's Lambda")
    if config.getoption("--mutants"):
        if config.getoption("--target") != "simulator" or config.getoption("--prove"):
            raise pytest.UsageError("--mutants goes with --target simulator and without --prove")
        config.pluginmanager.register(_mutants())
    if config.getoption("--relevance"):
        if config.getoption("--target") != "simulator" or config.getoption("--prove") or config.getoption("--mutants"):
            raise pytest.UsageError("--relevance goes with --target simulator, without --prove and --mutants")
        config.pluginmanager.register(relevance)
    if _has_results(config) and (config.getoption("--mutants") or config.getoption("--prove")):
        raise pytest.UsageError("--results and --expect are of a run without faults: leave out --prove and --mutants")
    baseline = _baseline(config)
    if not hasattr(config, "workerinput") and not (config.option.collectonly or config.option.help):
        _start(config)
    if _has_results(config) and not config.option.collectonly:
        plugin = results.Plugin(
            config.getoption("--results"),
            name=os.environ[_TARGET],
            url=os.environ[_ENDPOINT],
            baseline=baseline,
        )
        config.stash[_results] = plugin
        config.pluginmanager.register(plugin)


def _has_results(config: pytest.Config) -> bool:
    """Return whether the run records a status for each promise."""
    return bool(config.getoption("--results") or config.getoption("--expect"))


def _baseline(config: pytest.Config) -> dict[str, results.PromiseStatus] | None:
    """Return the statuses in the file of `--expect`; None without it."""
    path = config.getoption("--expect")
    try:
        return None if path is None else results.read_baseline(path)
    except MessagingError as error:
        raise pytest.UsageError(str(error)) from error


def _mutants() -> object:
    """Return the plugin of `--mutants`, which only a checkout of Sluice has."""
    try:
        return importlib.import_module(_MUTANTS)
    except ModuleNotFoundError as error:
        if not f"{_MUTANTS}.".startswith(f"{error.name}."):
            raise
        raise pytest.UsageError(
            "--mutants breaks the simulator's model by the rules in tests/mutants/, which is not here: run it in a"
            " checkout of Sluice"
        ) from error


def _start(config: pytest.Config) -> None:
    """Start or check the target, and set the variables by which workers find it.

    With `--results`, an endpoint that cannot be used is recorded instead of refused.
    """
    stack = ExitStack()
    config.stash[_emulator] = stack
    os.environ[_RUN] = uuid.uuid4().hex[:4]
    try:
        if _is_declared(config):
            _declared_environment(config)
        byo = options.byo_queues(config)
        chosen = options.target(config, stack)
        os.environ[_ENDPOINT], os.environ[_TARGET] = chosen.endpoint, chosen.name
        config.stash[_notice] = chosen.notice
        if byo is not None:
            config.stash[_byo_queues] = byo, byo.promises(_bind_target(config))
    except MessagingError as error:
        if not isinstance(error, EndpointError) or not _has_results(config):
            raise pytest.UsageError(str(error)) from error
        url = config.getoption("--endpoint-url") or os.environ.get("AWS_ENDPOINT_URL") or "-"
        os.environ.update({_ENDPOINT: url, _TARGET: "endpoint", _UNUSABLE: str(error)})


def _is_declared(config: pytest.Config) -> bool:
    """Return whether there is a declaration; only the promises of a deployed environment need one."""
    return config.getoption("--declaration") is not None or is_declared()


def _declared_environment(config: pytest.Config) -> Environment:
    """Return the environment of `--env`."""
    return load_declaration(config.getoption("--declaration")).environment(config.getoption("--env"))


def _has_functions(config: pytest.Config) -> bool:
    """Return whether a consumer of the environment of `--env` runs as a Lambda function."""
    return any(consumer.runtime is not None for consumer in _declared_environment(config).consumers)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print what a run on AWS takes, and by which names its resources would be found if it were killed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    notice = session.config.stash.get(_notice, "")
    if notice and reporter is not None:
        reporter.write_line(f"{notice}; every name begins with ct-{os.environ[_RUN]}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the processes and servers that this process started."""
    stack = config.stash.get(_emulator, None)
    if stack is not None:
        stack.close()


def _promise_id(item: pytest.Item) -> str:
    """Return the promise in a test's marker; refuse a test without exactly one, or with an unknown promise."""
    markers = list(item.iter_markers("promise"))
    if len(markers) != 1:
        raise pytest.UsageError(f"{item.nodeid} has {len(markers)} promise markers, allowed is exactly one")
    (id_,) = markers[0].args
    if id_ not in PROMISES:
        raise pytest.UsageError(f"{item.nodeid} names promise {id_!r}, which contract_tests/promises/ does not have")
    return str(id_)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Under --prove, run each test once for each saboteur of its promise."""
    if "saboteur" in metafunc.fixturenames and metafunc.config.getoption("--prove"):
        marker = metafunc.definition.get_closest_marker("promise")
        promise = None if marker is None else PROMISES.get(marker.args[0])
        metafunc.parametrize("saboteur", promise.saboteurs if promise else (), indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each contract test by its promise, expect the known deviations, and sort the tests by their promise's area.

    Tests that need what the target does not have are deselected. Tests of other folders stay as they are, and run
    first.
    """
    target = os.environ.get(_TARGET, "")
    areas = list(dict.fromkeys(promise.area for promise in PROMISES.values()))
    others = [item for item in items if not item.path.is_relative_to(_SUITE)]
    contracts = [item for item in items if item.path.is_relative_to(_SUITE)]
    for item in contracts:
        if _promise_id(item) in CORE:
            item.add_marker(pytest.mark.core)
        deviation = deviations.of_promise(target, _promise_id(item))
        if deviation is not None and not config.getoption("--prove"):
            # Only a failed assertion is the known deviation; a crash still fails the run.
            reason = f"{_promise_id(item)}, {deviation}"
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=(AssertionError,)))
    if target == "simulator" or not _is_declared(config):
        _deselect(config, contracts, [item for item in contracts if item.get_closest_marker("deployment") is not None])
    elif not _has_functions(config):
        _deselect(config, contracts, [item for item in contracts if item.get_closest_marker("functions") is not None])
    if not binding.plays_functions(target):
        played = [item for item in contracts if PROMISES[_promise_id(item)].promiser is Promiser.MAPPING]
        _deselect(config, contracts, played)
    contracts.sort(key=lambda item: areas.index(PROMISES[_promise_id(item)].area))
    if target == "aws":
        for item in contracts:
            item.add_marker(pytest.mark.timeout(aws.TEST_SECONDS_MAX))
    if _byo_queues in config.stash:
        _, promises = config.stash[_byo_queues]
        _deselect(config, contracts, [item for item in contracts if _promise_id(item) not in promises])
    items[:] = others + contracts


def _deselect(config: pytest.Config, contracts: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    """Remove tests from the list of contract tests, and report them to pytest as deselected."""
    contracts[:] = [item for item in contracts if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the promise to a failed test's report; under --prove, invert the result."""
    report = yield
    if not results.is_contract(item):
        return report
    failures.tell(item, call, report)
    if not item.config.getoption("--prove") or call.when != "call":
        return report
    promise, saboteur = _promise_id(item), item.callspec.params["saboteur"]  # type: ignore[attr-defined]
    seen = _sabotage_result(promise, call)
    report.user_properties.append(("proof", f"{promise} {saboteur} {seen} {results.failing_line(item, call)}"))
    if seen in ("red", "deviates"):
        report.outcome, report.longrepr = "passed", None
    elif seen == "GREEN":
        report.outcome = "failed"
        report.longrepr = f"{promise} stays green under saboteur {saboteur}: the test cannot fail"
    return report


def _sabotage_result(promise: str, call: pytest.CallInfo[None]) -> str:
    """Return the result of a test under a saboteur: red, GREEN, ERROR, or deviates.

    Only a failed assertion is red. A crash is an ERROR and proves nothing. On a target that breaks the promise anyway,
    a failed assertion is "deviates".
    """
    if call.excinfo is None:
        return "GREEN"
    if not call.excinfo.errisinstance((AssertionError, pytest.fail.Exception)):
        return "ERROR"
    return "red" if deviations.of_promise(os.environ[_TARGET], promise) is None else "deviates"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the target and its differences to AWS; under --prove, print the result of each promise and saboteur."""
    failures.summarise(terminalreporter)
    if os.environ.get(_TARGET) is None:
        return
    terminalreporter.write_line(f"target: {os.environ[_TARGET]} at {os.environ[_ENDPOINT]}")
    if os.environ[_TARGET] in ("localstack", "localemu") and MODIFIED in os.environ:
        terminalreporter.write_line(
            "modified target: queues named -window3- deduplicate for 3 s instead of 300 s, alarms are looked at every"
            " 10 s, and functions are played by the tests"
        )
    if os.environ[_TARGET] == "simulator" or not _is_declared(config):
        deployed_only = sum(promise.promiser is Promiser.STACK for promise in PROMISES.values())
        hint = "" if _is_declared(config) else "; none is declared here, name its file with --declaration"
        terminalreporter.write_line(f"{deployed_only} promises need a deployed environment and were deselected{hint}")
    elif not _has_functions(config):
        name = config.getoption("--env")
        terminalreporter.write_line(f"promises of Lambda functions were deselected: environment {name!r} has none")
    if not binding.plays_functions(os.environ[_TARGET]):
        of_mappings = sum(promise.promiser is Promiser.MAPPING for promise in PROMISES.values())
        terminalreporter.write_line(
            f"{of_mappings} promises of event source mappings are unknown here and were deselected: this process plays"
            " a function on the simulator and on a LocalStack that the run starts"
        )
    if _byo_queues in config.stash:
        byo, promises = config.stash[_byo_queues]
        terminalreporter.write_line(
            f"given queue: {byo.queue_url}; {len(promises)} promises can be held against what was given,"
            f" {len(PROMISES) - len(promises)} need resources of their own and were deselected"
        )
    if not config.getoption("--prove"):
        return
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    proofs = sorted(value for report in reports for name, value in report.user_properties if name == "proof")
    terminalreporter.section("promise by saboteur")
    for proof in proofs:
        promise, saboteur, seen, line = proof.split()
        reason = deviations.of_promise(os.environ[_TARGET], promise) if seen == "deviates" else None
        text = line if reason is None else f"{line} (red by itself: {reason})"
        terminalreporter.write_line(f"{promise:8} {saboteur:28} {seen:9} {text}")
    unproven = len(PROMISES.keys() - {proof.split()[0] for proof in proofs})
    count = {seen: sum(proof.split()[2] == seen for proof in proofs) for seen in ("red", "deviates", "GREEN", "ERROR")}
    terminalreporter.write_line(
        f"{count['red']} of {len(proofs)} turned red, {count['deviates']} are red on this target without a saboteur,"
        f" {count['GREEN'] + count['ERROR']} proved nothing; {unproven} promises were not tested"
    )


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> binding.Target:
    """Return the endpoint under test."""
    if _UNUSABLE in os.environ:
        raise EndpointError(os.environ[_UNUSABLE])
    bound = _bind_target(request.config)
    if _has_results(request.config):
        return request.config.stash[_results].watch.on(bound)
    if request.config.getoption("--mutants") or request.config.getoption("--relevance"):
        breaking.shorten_grace(bound)
    return binding.sharing_clients(bound) if bound.name == "simulator" else bound


def _bind_target(config: pytest.Config) -> binding.Target:
    """Return the target that the controlling process has chosen; under --prove it has less patience."""
    patience = _PATIENCE_SECONDS_SABOTAGED if config.getoption("--prove") else _PATIENCE_SECONDS
    return binding.BINDINGS[os.environ[_TARGET]](os.environ[_ENDPOINT], patience_seconds=patience)


@pytest.fixture(autouse=True)
def time_of_the_target(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make everything in a contract test that waits use the target's clock."""
    if not results.is_contract(request.node):
        yield
        return
    with waiting_on(request.getfixturevalue("target").clock):
        yield


@pytest.fixture
def saboteur(request: pytest.FixtureRequest) -> str | None:
    """Return the saboteur this run of the test must notice; None in an honest run."""
    return getattr(request, "param", None)


@pytest.fixture(scope="session")
def deployed_environment(request: pytest.FixtureRequest, target: binding.Target) -> Environment:
    """Return the environment of `--env` after it was deployed, or found deployed."""
    declared = _declared_environment(request.config)
    require(target, declared, is_own=options.OWN in os.environ)
    return declared


@pytest.fixture
def deployment(deployed_environment: Environment, target: binding.Target, saboteur: str | None) -> DeployedEnvironment:
    """Return the deployed environment with clients of this test, which a saboteur may have changed."""
    services = ("sqs", "sns", "cloudwatch", "cloudformation", "kms", "lambda", "iam", "events")
    clients = {service: target.make_client(service) for service in services}
    if saboteur is not None:
        sabotage(clients.values(), saboteur)
    return DeployedEnvironment(
        environment=deployed_environment,
        account=target.make_client("sts").get_caller_identity()["Account"],
        patience_seconds=target.patience_seconds,
        functions=clients.pop("lambda"),
        **clients,
    )


@pytest.fixture
def resources(
    request: pytest.FixtureRequest, target: binding.Target, saboteur: str | None
) -> Iterator[Resources | ByoQueueResources]:
    """Yield an object that makes queues and topics for this test alone, or hands out the user's own."""
    sqs, sns = target.make_client("sqs"), target.make_client("sns")
    if _byo_queues in request.config.stash:
        byo, _ = request.config.stash[_byo_queues]
        lent = ByoQueueResources(target, byo, sqs, sns, number=next(_byo_tests))
        yield lent
        lent.close()
        return
    is_of_mapping = PROMISES[_promise_id(request.node)].promiser is Promiser.MAPPING
    functions = target.make_client("lambda") if is_of_mapping else None
    clients = (sqs, sns) if functions is None else (sqs, sns, functions)
    hook = None if saboteur is None else sabotage(clients, saboteur)
    if hook is None and deviations.of_promise(target.name, _promise_id(request.node)) is not None:
        # The test will wait in vain.
        target = replace(target, patience_seconds=min(target.patience_seconds, _PATIENCE_SECONDS_DEVIATING))
    prefix = f"ct-{os.environ[_RUN]}{uuid.uuid4().hex[:6]}"
    made = Resources(target, sqs, sns, prefix, functions=functions)
    yield made
    if hook is not None:
        for client in clients:
            hook.detach(client)
    made.close()
