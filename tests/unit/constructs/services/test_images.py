"""The built image: its files, its processors, and the refusal of projects that cannot be built."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from sluice.constructs.services.images import Images
from sluice.declaration import Architecture
from sluice.errors import ConfigError
from tests.support.declaration import environment
from tests.support.project import PROJECT

DEV = environment("dev")
TEMPLATE = PROJECT / "sluice" / "templates" / "project"
WITHIN = {"ours": "sluice/worker.py", "a new project's": "project_module/handlers.py"}
OUTSIDE = ("tests/test_worker.py", "docs/guide.md", "CHANGELOG.md", "environments.py", "app.py", ".env", "local.db")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.fixture(params=WITHIN)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Return a project with a Dockerfile and a .dockerignore that users get, and a file that gets into its image."""
    project, (folder, dot) = tmp_path / "project", (PROJECT, ".") if request.param == "ours" else (TEMPLATE, "dot_")
    within = WITHIN[request.param]
    for name in (*OUTSIDE, within, "requirements-worker.lock"):
        _write(project / name, "first")
    shutil.copy(folder / "Dockerfile", project)
    shutil.copy(folder / f"{dot}dockerignore", project / ".dockerignore")
    return project, within


@pytest.fixture
def image_name(tmp_path: Path) -> Callable[..., tuple[str, Any]]:
    """Return a function that returns the name of a project's image, a hash of all its files, and its source."""

    def build(project: Path, architecture: Architecture = Architecture.X86_64) -> tuple[str, Any]:
        cdk.AssetStaging.clear_asset_hash_cache()  # as for a process of its own
        app = cdk.App(outdir=str(tmp_path / "out"))
        stack = cdk.Stack(app, "Stack")
        cdk.CfnResource(stack, "Other", type="AWS::SNS::Topic")  # CDK warns of a stack without resources
        assert Images(
            stack, "Images", environment=replace(DEV, architecture=architecture), project=project
        ).shared_image
        app.synth()
        manifest = json.loads((tmp_path / "out" / "Stack.assets.json").read_text(encoding="utf-8"))
        ((name, image),) = manifest["dockerImages"].items()
        return name, image["source"]

    return build


def test_a_file_that_is_not_in_the_image_makes_no_new_one(
    files: tuple[Path, str], image_name: Callable[..., tuple[str, Any]]
) -> None:
    """A changed test, document, declaration or compiled file does not change the name; a changed source does."""
    project, within = files
    before, _ = image_name(project)

    for name in (*OUTSIDE, "docs/new.md", f"{Path(within).parent}/__pycache__/worker.pyc"):
        _write(project / name, "second")
    beside, _ = image_name(project)
    _write(project / within, "second")
    changed, source = image_name(project)

    assert beside == before
    assert changed != before
    sent = {
        file.relative_to(project.parent / "out" / source["directory"])
        for file in (project.parent / "out" / source["directory"]).rglob("*")
    }
    assert Path(within) in sent
    assert not {str(path) for path in sent} & {*OUTSIDE}


def test_an_image_is_built_for_the_declared_processors(
    files: tuple[Path, str], image_name: Callable[..., tuple[str, Any]]
) -> None:
    """Each processor has its own image: images with one name would replace each other."""
    x86, of_x86 = image_name(files[0])
    arm, of_arm = image_name(files[0], Architecture.ARM64)

    assert of_x86["platform"] == "linux/amd64"
    assert of_arm["platform"] == "linux/arm64"
    assert x86 != arm


def test_a_project_without_a_dockerfile_is_refused(tmp_path: Path) -> None:
    """The refusal is one line that names the missing file. A declared image needs no Dockerfile."""
    stack = cdk.Stack(cdk.App(), "Stack")
    images = Images(stack, "Images", environment=DEV, project=tmp_path)

    with pytest.raises(ConfigError) as refused:
        images.of(DEV.consumers[0])

    assert str(refused.value) == (
        f"Environment('dev').image is None, allowed is None with a Dockerfile to build it of, and there is no"
        f" {tmp_path}/Dockerfile; write one, or declare an image that is in a registry"
    )
    assert Images(stack, "Declared", environment=replace(DEV, image="w:1"), project=tmp_path).shared_image.is_in_ecr


def _of(project: Path, handlers: str) -> object:
    """Return the image of a consumer with those handlers, built from a project."""
    stack = cdk.Stack(cdk.App(), "Stack")
    consumer = replace(DEV.consumers[0], handlers=handlers)
    return Images(stack, "Images", environment=replace(DEV, consumers=(consumer,)), project=project).of(consumer)


def _refusal_of(project: Path, handlers: str) -> str:
    with pytest.raises(ConfigError) as refused:
        _of(project, handlers)
    return str(refused.value).replace(str(project), "PROJECT")


def test_handlers_that_the_image_would_not_hold_are_refused(files: tuple[Path, str]) -> None:
    """The refusal is one line that says what to add: to .dockerignore, or to the Dockerfile.

    The projects are those that `sluice init` writes.
    """
    project, within = files
    held = within.removesuffix(".py").replace("/", ".")
    _write(project / "orders" / "billing" / "__init__.py", "")
    _write(project / "alone.py", "")
    begun = "Consumer('billing').handlers is"

    assert _of(project, held)
    assert _refusal_of(project, "orders.billing") == (
        f"{begun} 'orders.billing', allowed is a module that the image holds, and PROJECT/.dockerignore keeps"
        " orders/billing/__init__.py back; add a line to it: !orders"
    )

    with (project / ".dockerignore").open("a", encoding="utf-8") as file:
        file.write("!orders\n!alone.py\n")

    assert _refusal_of(project, "orders.billing") == (
        f"{begun} 'orders.billing', allowed is a module that the image holds, and PROJECT/Dockerfile does not copy"
        " orders/billing/__init__.py; add to its last stage: COPY orders orders/"
    )
    assert _refusal_of(project, "alone").endswith("does not copy alone.py; add to its last stage: COPY alone.py ./")

    with (project / "Dockerfile").open("a", encoding="utf-8") as file:
        file.write("COPY orders orders/\nCOPY alone.py ./\n")

    assert _of(project, "orders.billing")
    assert _of(project, "alone")


def test_handlers_outside_the_folder_of_the_image_are_refused(
    files: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A builder does not look where Python finds them here. An installed module may be installed in the image, too."""
    _write(tmp_path / "elsewhere" / "their_handlers.py", "")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")

    assert _refusal_of(files[0], "their_handlers") == (
        "Consumer('billing').handlers is 'their_handlers', allowed is a module in PROJECT, of which the image is built,"
        f" and this one is {tmp_path}/elsewhere/their_handlers.py; move it there, or declare an image that holds it"
    )
    assert _of(files[0], "sqlalchemy.orm")


def test_handlers_of_an_image_that_is_declared_are_not_looked_for(files: tuple[Path, str]) -> None:
    _write(files[0] / "orders.py", "")
    declared = replace(DEV, image="w:1", consumers=(replace(DEV.consumers[0], handlers="orders"),))
    own = replace(DEV.consumers[0], handlers="orders", image="w:2")

    for environment_, consumer in ((declared, declared.consumers[0]), (DEV, own)):
        stack = cdk.Stack(cdk.App(), "Stack")
        assert Images(stack, "Images", environment=environment_, project=files[0]).of(consumer).is_in_ecr
