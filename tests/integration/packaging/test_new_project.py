"""`sluice init` from the wheel, in an environment of its own: what it writes is tested, deployed, used and loaded."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from emulator import localstack
from tests.integration.packaging.conftest import install, run, run_to_end
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
    run_to_end(environment / "bin" / "sluice", "init", "order-desk", cwd=folder)
    made = folder / "order-desk"
    (made / ".venv").symlink_to(environment)
    (made / "node_modules").symlink_to(PROJECT / "node_modules")
    return made


@pytest.fixture(scope="module")
def endpoint(project: Path, localstack_shared: localstack.Emulator) -> str:
    """Return where the project is deployed."""
    run_to_end("make", "deploy-local", f"ENDPOINT={localstack_shared.endpoint_url}", cwd=project)
    return f"ENDPOINT={localstack_shared.endpoint_url}"


@pytest.mark.slow  # an environment of its own
def test_the_handlers_of_a_new_project_are_tested_on_the_simulator(project: Path) -> None:
    printed = run_to_end("make", "test", cwd=project).stdout

    assert "4 passed" in printed


def test_make_try_handles_an_order_of_a_new_project_on_sqlite(project: Path, tmp_path: Path) -> None:
    """It needs neither Docker nor Node nor an account."""
    printed = run_to_end("make", "try", f"SLUICE_DSN=sqlite:///{tmp_path}/try.db", cwd=project)

    assert '"handled": 1' in printed.stderr


@pytest.mark.slow  # the project that is deployed is synthesized, too
def test_a_new_project_is_synthesized(project: Path) -> None:
    """Five stacks of its environment `dev`, in which cdk-nag finds nothing; `local` is deployed below."""
    run_to_end("make", "synth", "ENV=dev", cwd=project)

    templates = [file.read_text() for file in (project / "cdk.out" / "assembly-dev").glob("*.template.json")]
    assert len(templates) == 5
    assert all("order-desk-dev" in template for template in templates)
    assert not any("sluice-dev" in template for template in templates)


@pytest.mark.slow  # three synths in environments of their own
def test_a_project_of_an_earlier_version_is_synthesized_to_the_same_templates(project: Path, tmp_path: Path) -> None:
    """Such a project has no stacks/ and imports the stage from its old module; a warning names the new place."""
    for name in ("environments.py", "cdk.json", "Dockerfile", ".dockerignore", "order_desk"):
        (tmp_path / name).symlink_to(project / name)
    text_ = (project / "app.py").read_text(encoding="utf-8")
    earlier = text_.replace("from stacks.stage import", "from sluice.constructs.stage import")
    (tmp_path / "app.py").write_text(earlier, encoding="utf-8")
    python, context = project / ".venv" / "bin" / "python", (project / "cdk.json").read_text(encoding="utf-8")
    variables = {"CDK_CONTEXT_JSON": json.dumps({**json.loads(context)["context"], "env": "dev"})}

    run_to_end(python, "app.py", cwd=project, CDK_OUTDIR=str(tmp_path / "new"), **variables)
    ended = run_to_end(python, "app.py", cwd=tmp_path, CDK_OUTDIR=str(tmp_path / "old"), **variables)

    new, old = (
        {file.name: file.read_bytes() for file in (tmp_path / version / "assembly-dev").glob("*.template.json")}
        for version in ("new", "old")
    )
    assert len(new) == 5
    assert old == new
    assert "a project owns its stage: write stacks/stage.py as `sluice init` does" in ended.stderr


@pytest.mark.slow  # the app of this checkout refuses it, too
def test_a_handlers_module_that_is_not_there_is_refused_at_synth(project: Path, tmp_path: Path) -> None:
    text_ = (project / "environments.py").read_text(encoding="utf-8")
    declared = tmp_path / "environments.py"
    declared.write_text(text_.replace("order_desk.handlers", "order_desk.handler"), encoding="utf-8")

    ended = run(".venv/bin/python", "app.py", cwd=project, SLUICE_DECLARATION=str(declared))

    assert ended.returncode == 3
    (line,) = ended.stderr.splitlines()
    assert line.startswith("app.py: Consumer('invoices') in ")
    assert "handlers are 'order_desk.handler', and there is no such module" in line


def test_the_python_and_the_workflows_of_a_new_project_are_clean(project: Path) -> None:
    """Neither ruff nor actionlint finds anything; the order of imports is the project's own."""
    ruff = PROJECT / ".venv" / "bin" / "ruff"
    files = ("app.py", "environments.py", "order_desk", "stacks", "tests")

    run_to_end(ruff, "check", "--isolated", "--line-length", "120", "--select", "B,D1,E,F,I,N,UP", *files, cwd=project)
    run_to_end(ruff, "format", "--isolated", "--line-length", "120", "--check", *files, cwd=project)
    run_to_end("node", "scripts/lint-workflows.mjs", project / ".github" / "workflows", cwd=PROJECT)


def _files(project: Path) -> dict[str, bytes]:
    """Return what belongs to the project, by name: neither what it installs nor what its programs leave."""
    left = {".venv", "node_modules", "cdk.out", "__pycache__", ".pytest_cache", ".ruff_cache"}
    return {
        str(file.relative_to(project)): file.read_bytes()
        for file in project.rglob("*")
        if file.is_file() and not left & {*file.relative_to(project).parts}
    }


@pytest.mark.slow  # one more environment
def test_a_later_version_changes_no_file_of_a_working_project(
    project: Path, environment: Path, next_wheel: Path
) -> None:
    """The later version has other templates. The project keeps its files, its tests and its names in AWS."""
    sluice, before = environment / "bin" / "sluice", _files(project)
    names = run_to_end(sluice, "env", "dev", cwd=project).stdout

    install(environment, str(next_wheel), "--no-deps")
    printed = run_to_end("make", "test", cwd=project).stdout

    assert run_to_end(sluice, "--version", cwd=project).stdout == "sluice, version 0.1.1\n"
    assert "4 passed" in printed
    assert _files(project) == before
    assert len(before) == 25
    assert run_to_end(sluice, "env", "dev", cwd=project).stdout == names
    assert names.startswith("topics: order-desk-dev-events.fifo\n")


@pytest.mark.slow  # the demo deploys this checkout
def test_a_deployed_project_handles_a_message(project: Path, endpoint: str) -> None:
    run_to_end("make", "message", endpoint, cwd=project)

    engine = create_engine(f"sqlite:///{project / _DATABASE}")
    with engine.connect() as connection:
        found = connection.execute(text('SELECT "order", cents FROM invoices')).all()
    engine.dispose()
    assert [tuple(row) for row in found] == [("order-1", 1250)]


@pytest.mark.slow  # the demo runs them against what this checkout deploys
def test_the_contracts_hold_where_a_project_is_deployed(project: Path, endpoint: str) -> None:
    printed = run_to_end("make", "contracts", endpoint, "SELECT=-k 'blocking or fan_out'", cwd=project).stdout

    assert re.search(r"\d+ passed", printed), printed


@pytest.mark.slow  # the demo runs the load test of this checkout
def test_a_deployed_project_passes_a_load_test(project: Path, endpoint: str) -> None:
    printed = run_to_end("make", "load", endpoint, cwd=project).stdout

    assert "VALID" in printed


def _install_as_locked(project: Path) -> None:
    """Install what `make setup` installs, by the project's own locks and wheel; uv has most of it in its cache."""
    uv = PROJECT / ".venv" / "bin" / "uv"
    run_to_end(sys.executable, "-m", "venv", ".venv", cwd=project)
    install_locked = (
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        ".venv/bin/python",
        "--require-hashes",
        "--requirement",
    )
    run_to_end(*install_locked, "requirements.lock", cwd=project)
    wheel_alone = ("--no-index", "--no-deps", "--find-links", "wheels")
    run_to_end(*install_locked, "wheels/requirements.txt", *wheel_alone, cwd=project)
    (project / "node_modules").symlink_to(PROJECT / "node_modules")


@pytest.mark.slow  # an environment of its own, with nothing but what the project's page says
@pytest.mark.timeout(900)
def test_a_project_on_lambda_works_by_its_page_alone(wheel: Path, tmp_path: Path) -> None:
    """Each command behind the installation is one that `sluice init` or the README names."""
    run_to_end(PROJECT / ".venv" / "bin" / "uv", "venv", "--quiet", "--python", sys.executable, "base", cwd=tmp_path)
    install(tmp_path / "base", str(wheel))
    written = run_to_end(tmp_path / "base" / "bin" / "sluice", "init", "desk", "--runtime", "lambda", cwd=tmp_path)
    project = tmp_path / "desk"
    _install_as_locked(project)

    tried = run_to_end("make", "try", cwd=project)
    tested = run_to_end("make", "test", cwd=project)
    function = run_to_end("make", "function", cwd=project)
    run_to_end("make", "package", cwd=project)
    declared = (project / "environments.py").read_text(encoding="utf-8")
    packaged = declared.replace("maximum_concurrency=10)", 'maximum_concurrency=10, package="build/function")')
    (project / "environments.py").write_text(packaged, encoding="utf-8")
    run_to_end("make", "synth", "ENV=dev", cwd=project)

    assert "make function" in written.stdout
    assert '"handled": 1' in tried.stderr
    assert "6 passed" in tested.stdout
    assert '"answered": 1, "failed": 0' in function.stderr
    assert packaged != declared
    assemblies = (project / "cdk.out" / "assembly-dev").glob("*.template.json")
    templates = "".join(file.read_text(encoding="utf-8") for file in assemblies)
    assert '"Runtime": "python3.13"' in templates
