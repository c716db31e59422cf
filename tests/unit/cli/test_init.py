"""`sluice init` writes a project as a whole or not at all, and refuses names and folders that cannot be used."""

import ast
import base64
import errno
import hashlib
import json
import os
import pydoc
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.cli.main import main
from sluice.cli.new_project import init, own_wheel
from sluice.declaration import Lambda, load_declaration, naming
from tests.support.project import PROJECT

type Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the wheel, which every project gets and which takes a second to compress."""
    folder = tmp_path_factory.mktemp("wheels")
    own_wheel.write_wheel(folder)
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, wheels: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "write_wheel", lambda folder: shutil.copytree(wheels, folder, dirs_exist_ok=True))

    def run(name: str, runtime: str = "tasks") -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["sluice", "init", "--runtime", runtime, "--", name])
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0), capsys.readouterr().err
        return 0, capsys.readouterr().out

    return run


def _files(folder: Path) -> list[str]:
    """Return the paths of all files below a folder."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_a_project_is_written_under_its_name(run: Run, tmp_path: Path) -> None:
    """With the module's name, order_desk, in every file, and no placeholder left."""
    code, printed = run("order-desk")

    assert code == 0
    assert printed == (
        "order-desk/ is written, and yours: no version of Sluice changes a file in it. Next:\n"
        "  cd order-desk\n"
        "  make try\n"
        "  make setup test\n"
        "  make synth ENV=dev\n"
    )
    assert os.listdir(tmp_path) == ["order-desk"]  # noqa: PTH208 (hidden names, too)
    assert _files(tmp_path / "order-desk") == [
        ".dockerignore",
        ".github/workflows/ci.yml",
        ".github/workflows/deploy.yml",
        ".gitignore",
        "Dockerfile",
        "Makefile",
        "README.md",
        "app.py",
        "cdk.json",
        "compose.yaml",
        "environments.py",
        "load/smoke.yaml",
        "order_desk/__init__.py",
        "order_desk/handlers.py",
        "order_desk/producer.py",
        "order_desk/tables.py",
        "package.json",
        "pyproject.toml",
        "requirements-worker.lock",
        "requirements.lock",
        "stacks/__init__.py",
        "stacks/stage.py",
        "tests/test_handlers.py",
        "wheels/requirements.txt",
        "wheels/sluice_fifo-0.1.0-py3-none-any.whl",
    ]
    for file in (tmp_path / "order-desk").rglob("*[!l]"):  # no wheel
        assert not file.is_file() or not any(
            placeholder in file.read_text(encoding="utf-8", errors="replace")
            for placeholder in ("project_module", "project-name", "project_version")
        ), file


def test_compiled_files_beside_the_templates_are_not_copied(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing a wheel with pip compiles every Python file in it."""
    templates = tmp_path / "templates" / "project"
    (templates / "__pycache__").mkdir(parents=True)
    (templates / "app.py").write_text("", encoding="utf-8")
    (templates / "__pycache__" / "app.cpython-313.pyc").write_bytes(b"\xff")
    monkeypatch.setattr(init, "_TEMPLATES", templates.parent)

    assert run("shop")[0] == 0

    assert [file for file in _files(tmp_path / "shop") if not file.startswith("wheels/")] == ["app.py"]


def test_a_project_on_lambda_differs_by_its_declaration_and_a_test(run: Run, tmp_path: Path) -> None:
    """Its function is in `dev`.

    LocalStack runs no function without Docker, so `local` has a worker on the same queue.
    """
    run("shop")
    code, printed = run("outlet", "lambda")

    files = {name: _files(tmp_path / name) for name in ("shop", "outlet")}
    of_tasks = [file.replace("shop/", "outlet/") for file in files["shop"]]
    assert code == 0
    assert "  make setup test\n  make function\n  make synth ENV=dev\n" in printed
    assert files["outlet"] == sorted([*of_tasks, "tests/test_function.py"])
    declared = load_declaration(tmp_path / "outlet" / "environments.py")
    runtimes = {name: [consumer.runtime for consumer in declared[name].consumers] for name in declared}
    assert runtimes == {"local": [None], "dev": [Lambda(timeout_seconds=10, maximum_concurrency=10)]}
    assert "outlet.tables" in str(declared["dev"].migrate)


def test_a_python_that_is_too_old_is_refused_before_pip_runs(run: Run, tmp_path: Path) -> None:
    """Pip looks for minutes for packages that such a Python can have, and finds none."""
    run("shop")
    old = tmp_path / "python3.11"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.11.7\nexit 1\n', encoding="utf-8")
    old.chmod(0o755)
    variables = {"PATH": f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    (tmp_path / "python").symlink_to(old)  # the active environment has no Sluice

    command = ["make", "install", f"PYTHON={old}"]
    ended = subprocess.run(command, cwd=tmp_path / "shop", env=variables, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == (
        f"setup: {old} is Python 3.11.7, allowed is Python 3.12 or newer; name one: make setup PYTHON=python3.13"
    )


def test_a_new_project_has_sluice_as_a_wheel_and_its_hash(run: Run, tmp_path: Path) -> None:
    """Each file of the wheel has its hash in the wheel's record; equal files make equal wheels."""
    run("shop")
    run("store")

    (wheel,) = (tmp_path / "shop" / "wheels").glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (named,) = (wheel.parent / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert named == f"sluice-fifo==0.1.0 --hash=sha256:{digest}"
    assert wheel.read_bytes() == (tmp_path / "store" / "wheels" / wheel.name).read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("sluice_fifo-0.1.0.dist-info/RECORD").decode().splitlines()
        recorded = {name: (content, size) for name, content, size in (line.rsplit(",", 2) for line in record)}
        names = {"sluice/py.typed", "contract_tests/suite.ini", "sluice_fifo-0.1.0.dist-info/entry_points.txt"}
        assert recorded.keys() == {*archive.namelist()} >= names
        content = archive.read("sluice/errors.py")
    expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    assert recorded["sluice/errors.py"] == (f"sha256={expected}", str(len(content)))


def test_a_new_project_installs_nothing_without_a_hash(run: Run, tmp_path: Path) -> None:
    """Neither in the image nor where it is deployed; and its own name is in no lock, for which an index is asked."""
    run("shop")

    texts = {name: (tmp_path / "shop" / name).read_text(encoding="utf-8") for name in ("Dockerfile", "Makefile")}
    installs = [
        command
        for text in texts.values()
        for command in re.findall(r"pip install[^&|;]*", text.replace("\\\n", " "))
        if "--require-hashes" not in command
    ]
    locks = [tmp_path / "shop" / name for name in ("requirements.lock", "requirements-worker.lock")]
    assert installs == []
    assert not any(re.search(r"^sluice", lock.read_text(encoding="utf-8"), re.MULTILINE) for lock in locks)
    assert locks[1].read_bytes() == (PROJECT / "requirements-worker.lock").read_bytes()


@pytest.mark.parametrize("name", ["order-desk", "a" * 40])
def test_the_declaration_of_a_new_project_has_two_environments(run: Run, tmp_path: Path, name: str) -> None:
    """Their application is the project's name, so that names in an account are unique.

    The longest NAME leaves room for suffixes.
    """
    run(name)

    declaration = load_declaration(tmp_path / name / "environments.py")

    assert {
        environment: (naming.topic_name(declared), [consumer.handlers for consumer in declared.consumers])
        for environment, declared in declaration.items()
    } == {
        environment: (f"{name}-{environment}-events.fifo", [f"{name.replace('-', '_')}.handlers"])
        for environment in ("local", "dev")
    }


def test_a_new_projects_load_profile_says_where_its_fields_are(run: Run, tmp_path: Path) -> None:
    run("shop")

    (named,) = re.findall(r"python -m pydoc (\S+)", (tmp_path / "shop" / "load" / "smoke.yaml").read_text())
    assert "drain_timeout_seconds: how long" in pydoc.render_doc(named)


def test_a_message_of_a_new_project_can_be_handled_by_another_consumer(run: Run, tmp_path: Path) -> None:
    """By `make message CONSUMER=mails`, as its README says."""
    run("shop")

    printed = subprocess.run(
        ["make", "-n", "message", "CONSUMER=mails"], cwd=tmp_path / "shop", capture_output=True, text=True, check=True
    ).stdout

    assert "sluice worker --consumer mails --until-idle 2" in printed


def test_a_new_project_is_small(run: Run, tmp_path: Path) -> None:
    """A first reader reads these three files; the bounds are what they were."""
    run("shop")
    names = ("app.py", "stacks/stage.py", "README.md")
    lines = {name: len((tmp_path / "shop" / name).read_text().splitlines()) for name in names}

    assert lines["app.py"] <= 40
    assert lines["stacks/stage.py"] <= 65
    assert lines["README.md"] <= 60
    assert all(ast.get_docstring(ast.parse(file.read_text())) for file in (tmp_path / "shop").rglob("*.py"))


def test_a_new_project_has_the_stage_that_this_repository_deploys(run: Run, tmp_path: Path) -> None:
    run("shop")

    for name in ("__init__.py", "stage.py"):
        assert (tmp_path / "shop" / "stacks" / name).read_text() == (PROJECT / "stacks" / name).read_text()


def test_a_new_project_has_the_feature_flags_that_sluice_is_tested_with() -> None:
    """Flags and pinned CDK are this repository's: others would make other templates."""
    folders = (PROJECT, PROJECT / "sluice" / "templates" / "project")

    ours, written = (json.loads((folder / "cdk.json").read_text())["context"] for folder in folders)
    versions = {json.loads((folder / "package.json").read_text())["dependencies"]["aws-cdk"] for folder in folders}

    assert written == ours
    assert len(versions) == 1


@pytest.mark.parametrize("name", ["Shop", "a_b", "a--b", "-a", "a-", "1a", "../a", "a/b", "", "é", "a" * 41])
def test_an_invalid_name_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    code, printed = run(name)

    assert code == 3
    assert (
        printed
        == f"sluice: NAME is {name!r}, allowed is up to 40 lower-case letters, digits and single inner hyphens, a"
        " letter first, such as order-invoices\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["class", "json", "boto3", "sluice", "spark-load", "tests", "app", "stacks"])
def test_a_name_of_an_existing_module_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    code, printed = run(name)

    assert code == 3
    assert (
        printed
        == f"sluice: NAME is {name!r}, and Python has a module {name.replace('-', '_')!r} already; choose another"
        " name\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_refused_and_left(run: Run, tmp_path: Path) -> None:
    run("shop")
    edited = tmp_path / "shop" / "environments.py"
    edited.write_text("mine", encoding="utf-8")

    code, printed = run("shop")

    assert code == 3
    assert printed.startswith("sluice: folder 'shop' is there and not empty, and nothing in it was changed;")
    assert edited.read_text(encoding="utf-8") == "mine"
    assert os.listdir(tmp_path) == ["shop"]  # noqa: PTH208


def test_a_file_of_that_name_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("mine", encoding="utf-8")

    code, printed = run("shop")

    assert code == 3
    assert printed == "sluice: 'shop' is there and is no folder; choose another name, or move it away\n"


def test_an_empty_folder_is_filled(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder counts as empty even if Python would take it for a package, as `python -m sluice` does."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop").mkdir()

    assert run("shop")[0] == 0
    assert (tmp_path / "shop" / "app.py").exists()


def test_a_full_disk_is_one_line_and_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fifth file cannot be written, and the first four are removed."""
    written: list[Path] = []
    write_text = Path.write_text

    def fill(self: Path, text: str, encoding: str) -> int:
        written.append(self)
        if len(written) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_text(self, text, encoding)

    monkeypatch.setattr(Path, "write_text", fill)

    assert run("shop") == (
        2,
        "sluice: cannot write to folder 'shop' (No space left on device); nothing is left of it; look at the disk's"
        " space and the permissions of the working directory\n",
    )
    assert os.listdir(tmp_path) == []  # noqa: PTH208
