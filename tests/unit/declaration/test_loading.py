"""The declaration's file is found, imported once and checked.

Every fault in it is refused in one line with its place.
"""

import ast
import sys
from pathlib import Path

import pytest

from sluice.declaration import Declaration, load_declaration, load_task_declaration, loading, task_settings
from sluice.errors import ConfigError
from tests.support.declaration import ENVIRONMENTS, FILE, environment
from tests.support.project import PROJECT

SOUND = """\
from sluice.declaration import Consumer, Environment, Removal


def _consumers(**more):
    return (
        Consumer(
            name="billing",
            **more,
        ),
    )


ENVIRONMENTS = (
    Environment(
        name="dev",
        region="us-east-1",
        consumers=_consumers(
            lanes=4,
            max_tasks=10,
        ),
        removal=Removal.DESTROY,
    ),
    Environment(
        name="prod",
        consumers=(Consumer(name="audit"),),
    ),
)
"""
TUPLE = (
    "allowed is a tuple of Environment values, such as ENVIRONMENTS = (Environment(…),); change it in environments.py"
)
FIELDS = (
    "name, topic, fifo, queue, types, filter_policy, visibility_timeout_seconds, max_attempts,"
    " message_retention_seconds, dead_letter_retention_seconds, processing_seconds, acceptable_latency_seconds, lanes,"
    " database_connections, expected_groups, min_tasks, max_tasks, stop_timeout_seconds, cpu, memory_mib, image,"
    " handlers, commit, poison, gaps, gap_wait_seconds, joined_at, inbox_retention_seconds, automatic_redrive, runtime,"
    " stack"
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a project's folder; modules imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(loading.VARIABLE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "environments", raising=False)
    return tmp_path


def _refusal(path: Path | None = None) -> str:
    """Return the refusal of a declaration."""
    with pytest.raises(ConfigError) as refused:
        load_declaration(path)
    return str(refused.value)


@pytest.mark.parametrize(
    ("sound", "wrong", "message"),
    [
        (
            "lanes=4",
            "lnes=4",
            f"Consumer has no field 'lnes' (did you mean 'lanes'?), allowed is one of {FIELDS}; change it in"
            " environments.py:18",
        ),
        (
            "lanes=4",
            'lanes="4"',
            "Consumer('billing').lanes is '4', allowed is a value of type int; change it in environments.py:18",
        ),
        (
            "max_tasks=10",
            "max_tasks=99",
            "Consumer('billing').max_tasks is 99, allowed is at most expected_groups / lanes (25): a group is worked on"
            " by one lane at a time, so further tasks never have work; change it in environments.py:19",
        ),
        (
            "us-east-1",
            "here",
            "Environment('dev').region is 'here', allowed is a region name such as 'eu-central-1'; change it in"
            " environments.py:16",
        ),
        (
            'name="prod",',
            "",
            "Environment.name is missing, allowed is a value of type str; change it in environments.py:23",
        ),
        (
            "lanes=4,",
            "lanes=4",
            "SyntaxError: invalid syntax. Perhaps you forgot a comma?; change it in environments.py:18",
        ),
        ("ENVIRONMENTS = (", "ENVIRONMENTS = ((", "SyntaxError: '(' was never closed; change it in environments.py:13"),
        (
            "Removal.DESTROY",
            "Removal.DESTORY",
            "Removal has no 'DESTORY' (did you mean 'DESTROY'?), allowed is Removal.DESTROY or Removal.RETAIN; change"
            " it in environments.py:21",
        ),
        (
            "Removal.DESTROY",
            '"destroy"',
            "Environment('dev').removal is 'destroy' (did you mean Removal.DESTROY?), allowed is Removal.DESTROY or"
            " Removal.RETAIN; change it in environments.py:21",
        ),
        (
            "Removal.DESTROY",
            "Removl.DESTROY",
            "NameError: name 'Removl' is not defined (did you mean 'Removal'?); change it in environments.py:21",
        ),
        (
            "from sluice.declaration",
            "from sluice.declaratoin",
            "ModuleNotFoundError: No module named 'sluice.declaratoin' (did you mean 'sluice.declaration'?); change it"
            " in environments.py:1",
        ),
        (
            "def _consumers",
            "1 / 0\ndef _consumers",
            "ZeroDivisionError: division by zero; change it in environments.py:4",
        ),
        ("def _consumers", "exit(4)\ndef _consumers", "SystemExit: 4; change it in environments.py:4"),
        (
            'name="prod"',
            'name="prod", application="shop"',
            "ENVIRONMENTS have the applications ['sluice', 'shop'], allowed is one for all of them; change it in"
            " environments.py",
        ),
        (
            'name="prod"',
            'name="prod", application="Shop"',
            "Environment('prod').application is 'Shop', allowed is up to 40 lower-case letters, digits and single inner"
            " hyphens, a letter first; change it in environments.py:24",
        ),
        ('"prod"', '"dev"', "ENVIRONMENTS is ['dev', 'dev'], allowed is each name once; change it in environments.py"),
        (
            "ENVIRONMENTS = (",
            "ENVIRONMENT = (",
            f"there is no ENVIRONMENTS in environments.py (did you mean 'ENVIRONMENT'?), {TUPLE}",
        ),
        (
            "ENVIRONMENTS = (",
            "ENVIRONMENTS = list((",
            "SyntaxError: '(' was never closed; change it in environments.py:13",
        ),
        (
            '"audit"',
            f'"{"a" * 60}"',
            f"'sluice-prod-{'a' * 60}-undelivered-dlq.fifo' has 93 characters, allowed are 80; shorten the names in"
            " environments.py",
        ),
    ],
)
def test_a_wrong_declaration_is_one_line_with_its_place(project: Path, sound: str, wrong: str, message: str) -> None:
    """The line is that of the field, also where the value is made by a function further up."""
    assert SOUND.count(sound) == 1
    (project / "environments.py").write_text(SOUND.replace(sound, wrong), encoding="utf-8")

    assert _refusal() == message


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("None", f"ENVIRONMENTS is of type NoneType, {TUPLE}"),
        ("()", f"ENVIRONMENTS is empty, {TUPLE}"),
        ("{}", f"ENVIRONMENTS is of type dict, {TUPLE}"),
        ("(1,)", f"ENVIRONMENTS[0] is of type int, {TUPLE}"),
    ],
)
def test_environments_are_a_tuple_and_nothing_else(project: Path, declared: str, message: str) -> None:
    (project / "environments.py").write_text(f"ENVIRONMENTS = {declared}\n", encoding="utf-8")

    assert _refusal() == message


def test_a_missing_imported_name_is_refused_with_its_neighbour(project: Path) -> None:
    (project / "environments.py").write_text("from sluice.declaration import Consumr\n", encoding="utf-8")

    refusal = _refusal()

    assert refusal.startswith("ImportError: cannot import name 'Consumr' from 'sluice.declaration'")
    assert refusal.endswith("(did you mean 'Consumer'?); change it in environments.py:1")


def test_a_wrong_value_is_refused_with_its_modules_line(project: Path) -> None:
    shared = "from sluice.declaration import Consumer\n\nBILLING = Consumer(name='billing', lanes=0)\n"
    (project / "shared_consumers.py").write_text(shared, encoding="utf-8")
    (project / "environments.py").write_text("from shared_consumers import BILLING\n", encoding="utf-8")

    assert _refusal() == (
        "Consumer('billing').lanes is 0, allowed is 1 to 120000 message groups; change it in shared_consumers.py:3"
    )


def test_a_missing_file_is_refused_with_the_ways_to_name_one(project: Path) -> None:
    ways = (
        "go to your project's folder, name the file with --declaration or SLUICE_DECLARATION, or write a project with"
        " `sluice init`"
    )

    assert _refusal() == f"there is no declaration environments.py (No such file or directory); {ways}"
    assert _refusal(project) == f"there is no declaration . (Is a directory); {ways}"


def test_a_wrong_declaration_is_refused_again_until_it_is_right(project: Path) -> None:
    """The file is read anew each time, and a refused one leaves no module `environments` behind."""
    file = project / "environments.py"
    file.write_text(SOUND.replace("lanes=4", "lanes=0"), encoding="utf-8")
    assert "lanes is 0" in _refusal()
    assert "environments" not in sys.modules

    file.write_text(SOUND, encoding="utf-8")

    assert list(load_declaration()) == ["dev", "prod"]


def test_the_declaration_comes_from_option_variable_or_working_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option takes precedence over the variable, and the variable over the folder."""
    for name in ("here", "named", "given"):
        (project / name).mkdir()
        (project / name / "environments.py").write_text(SOUND.replace('"dev"', f'"{name}"'), encoding="utf-8")
    monkeypatch.chdir(project / "here")

    assert next(iter(load_declaration())) == "here"
    monkeypatch.setenv(loading.VARIABLE, str(project / "named" / "environments.py"))
    assert next(iter(load_declaration())) == "named"
    assert next(iter(load_declaration(project / "given" / "environments.py"))) == "given"


def test_a_declaration_is_read_once(project: Path) -> None:
    """Any name of the file returns the same values, as module `environments`, with its folder on the path."""
    (project / "environments.py").write_text(SOUND, encoding="utf-8")

    first = load_declaration()

    assert load_declaration(project / "." / "environments.py") is first
    assert tuple(first.values()) == sys.modules["environments"].ENVIRONMENTS
    assert sys.path[0] == str(project)


def test_an_environment_is_found_by_its_name_or_refused() -> None:
    assert environment("dev") is ENVIRONMENTS["dev"]
    with pytest.raises(ConfigError) as refused:
        environment("stagign")

    assert str(refused.value) == (
        "environment 'stagign' is not declared (did you mean 'staging'?), allowed is one of local, dev, staging, prod;"
        f" declare it in {FILE.relative_to(PROJECT)}"
    )


def test_a_task_has_its_settings_and_no_file(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    """A file that is named wins.

    Commands that deploy do not read the settings, which have only a part of an environment.
    """
    (project / "environments.py").write_text(SOUND, encoding="utf-8")
    part = task_settings.task_environment(ENVIRONMENTS["prod"], None)
    monkeypatch.setenv(task_settings.VARIABLE, task_settings.render(part))

    assert load_task_declaration() == {"prod": part}
    assert list(load_task_declaration(FILE)) == ["local", "dev", "staging", "prod"]
    assert list(load_declaration()) == ["dev", "prod"]
    with pytest.raises(ConfigError) as refused:
        load_task_declaration().environment("local")
    assert str(refused.value).endswith("allowed is one of prod; declare it in $SLUICE_TASK_SETTINGS")


def test_the_projects_own_declaration_is_right() -> None:
    """The only test that reads it: it has an environment `local`, which `make demo` deploys."""
    declaration = load_declaration(PROJECT / "environments.py")

    assert isinstance(declaration, Declaration)
    assert declaration["local"].account == "000000000000"


def test_nothing_imports_a_projects_declaration_by_name() -> None:
    """The declaration is a user's file: it is found and loaded, and other code gets its values.

    The tests of a new project are a user's, too, and import it.
    """
    folders = [path for path in PROJECT.iterdir() if path.name[0] != "." and path.name != "node_modules"]
    files = [*PROJECT.glob("*.py"), *(file for folder in folders for file in folder.rglob("*.py"))]
    templates = PROJECT / "sluice" / "templates"
    ours = [file for file in files if templates not in file.parents]
    suspects = [text for file in ours if "environments" in (text := file.read_text(encoding="utf-8"))]
    imported = {name for text in suspects for node in ast.walk(ast.parse(text)) for name in _imported_modules(node)}

    assert len(files) > 300
    assert not imported & {"environments", "sluice.environments"}


def _imported_modules(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names."""
    if isinstance(node, ast.ImportFrom):
        return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
