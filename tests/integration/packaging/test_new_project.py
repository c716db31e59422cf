"""`sluice init` from the wheel, in an environment of its own: what it writes is tested, deployed, used and loaded."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from emulator import localstack
from tests.integration.packaging.conftest import done, run
from tests.support.project import PROJECT

pytestmark = pytest.mark.xdist_group("packaging")  # one worker builds the wheel, and each environment once

_DATABASE = "local.db"


@pytest.fixture(scope="module")
def environment(environment_with: Callable[[str], Path]) -> Path:
    """Return an environment with all of Sluice, and nothing of the checkout."""
    return environment_with("all")


@pytest.fixture(scope="module")
def project(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project with the environment, as `make setup` would install it."""
    folder = tmp_path_factory.mktemp("projects")
    done(environment / "bin" / "sluice", "init", "order-desk", cwd=folder)
    made = folder / "order-desk"
    (made / ".venv").symlink_to(environment)
    (made / "node_modules").symlink_to(PROJECT / "node_modules")
    return made


@pytest.fixture(scope="module")
def endpoint(project: Path, emulated: localstack.Running) -> str:
    """Return where the project is deployed."""
    done("make", "deploy-local", f"ENDPOINT={emulated.endpoint_url}", cwd=project)
    return f"ENDPOINT={emulated.endpoint_url}"


def test_the_handlers_of_a_new_project_are_tested_on_the_simulator(project: Path) -> None:
    """Its four tests pass, by the plug-in that the environment brings, without a server."""
    printed = done("make", "test", cwd=project).stdout

    assert "4 passed" in printed


def test_a_new_project_is_synthesized(project: Path) -> None:
    """Three stacks of its environment `dev`, in which cdk-nag finds nothing; `local` is deployed below."""
    done("make", "synth", "ENV=dev", cwd=project)

    templates = (project / "cdk.out" / "assembly-dev").glob("*.template.json")
    assert len(list(templates)) == 3


def test_a_handlers_module_that_is_not_there_is_refused_at_synth(project: Path, tmp_path: Path) -> None:
    """In one line, where `cdk synth` shows it."""
    text_ = (project / "environments.py").read_text(encoding="utf-8")
    declared = tmp_path / "environments.py"
    declared.write_text(text_.replace("order_desk.handlers", "order_desk.handler"), encoding="utf-8")

    ended = run(".venv/bin/python", "app.py", cwd=project, SLUICE_DECLARATION=str(declared))

    assert ended.returncode == 3
    (line,) = ended.stderr.splitlines()
    assert line.startswith("app.py: Consumer('invoices') in ")
    assert "handlers are 'order_desk.handler', and there is no such module" in line


def test_the_python_and_the_workflow_of_a_new_project_are_clean(project: Path) -> None:
    """For ruff, with imports in the project's own order, and for actionlint."""
    ruff = PROJECT / ".venv" / "bin" / "ruff"
    files = ("app.py", "environments.py", "order_desk", "tests")

    done(ruff, "check", "--isolated", "--line-length", "120", "--select", "B,D1,E,F,I,N,UP", *files, cwd=project)
    done(ruff, "format", "--isolated", "--line-length", "120", "--check", *files, cwd=project)
    done("node", "scripts/lint-workflows.mjs", project / ".github" / "workflows", cwd=PROJECT)


def test_the_installed_contract_suite_needs_neither_checkout_nor_declaration(environment: Path, tmp_path: Path) -> None:
    """On the simulator, in an empty folder whose pytest settings it does not take, it passes and says what it left."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n", encoding="utf-8")

    printed = done(
        environment / "bin" / "sluice", "contracts", "--target", "simulator", "-m", "core", cwd=tmp_path
    ).stdout

    assert " passed" in printed
    assert "promises need a deployed environment and were deselected; none is declared here" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["pytest.ini"]


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (
            "contracts",
            "only a checkout of Sluice starts LocalStack by itself; give --target simulator",
        ),
        ("conformance", "this starts emulators, which needs a checkout of Sluice; run it there"),
    ],
)
def test_what_needs_a_checkout_says_so_in_one_line(
    environment: Path, tmp_path: Path, command: str, refusal: str
) -> None:
    """No ModuleNotFoundError of `emulator`, and no traceback."""
    ended = run(environment / "bin" / "sluice", command, cwd=tmp_path)

    assert ended.returncode > 1
    (line,) = [line for line in ended.stderr.splitlines() if line]
    assert refusal in line


@pytest.mark.spark
def test_a_deployed_project_handles_a_message(project: Path, endpoint: str) -> None:
    """An order goes through outbox, relay, topic, queue and worker, and is one invoice in SQLite."""
    done("make", "message", endpoint, cwd=project)

    engine = create_engine(f"sqlite:///{project / _DATABASE}")
    with engine.connect() as connection:
        found = connection.execute(text('SELECT "order", cents FROM invoices')).all()
    engine.dispose()
    assert [tuple(row) for row in found] == [("order-1", 1250)]


@pytest.mark.spark
def test_the_contracts_hold_where_a_project_is_deployed(project: Path, endpoint: str) -> None:
    """A few of the core promises, against the project's LocalStack."""
    printed = done("make", "contracts", endpoint, "SELECT=-k 'blocking or fan_out'", cwd=project).stdout

    assert re.search(r"\d+ passed", printed), printed


@pytest.mark.spark
def test_a_deployed_project_passes_a_load_test(project: Path, endpoint: str) -> None:
    """Eight seconds of load with Spark, judged: nothing lost, doubled or reordered."""
    printed = done("make", "load", endpoint, cwd=project).stdout

    assert "VALID" in printed
