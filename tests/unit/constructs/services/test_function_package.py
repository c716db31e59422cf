"""A zip package that Lambda would not take, or that could not run the handlers, is refused at synth."""

from pathlib import Path

import aws_cdk as cdk
import pytest

from sluice.constructs.services.function_package import require_package
from sluice.declaration import Architecture, Consumer, Environment, Lambda, NewDatabase, Removal
from sluice.errors import ConfigError
from sluice.limits import FUNCTION_PACKAGE_BYTES_MAX
from stacks.stage import EnvironmentStage
from tests.support.templates.resources import of_kind, read, resources
from tests.support.templates.synthesis import CONTEXT

PACKAGE = "build/function"
RUNTIME = Lambda(package=PACKAGE, timeout_seconds=5, maximum_concurrency=5, entry_point="shop.function.handle")
CONSUMER = Consumer(name="billing", handlers="shop.billing", runtime=RUNTIME)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with Sluice, handlers and wheels of Python 3.13 for ARM."""
    made = tmp_path / PACKAGE
    for file in ("sluice/messaging/__init__.py", "shop/billing.py", "shop/function.py"):
        (made / file).parent.mkdir(parents=True, exist_ok=True)
        (made / file).touch()
    _install(made, "plain-1.0", "py3-none-any")
    _install(made, "compiled-2.0", "cp313-cp313-manylinux_2_17_aarch64", "cp313-cp313-manylinux2014_aarch64")
    _install(made, "stable-3.0", "cp39-abi3-manylinux_2_28_aarch64")
    return made


def _install(folder: Path, wheel: str, *tags: str) -> None:
    info = folder / f"{wheel}.dist-info"
    info.mkdir()
    (info / "WHEEL").write_text("Wheel-Version: 1.0\n" + "".join(f"Tag: {tag}\n" for tag in tags))


def _refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        require_package(CONSUMER, RUNTIME, folder, architecture=Architecture.ARM64)
    return str(refused.value)


def test_a_package_of_the_right_wheels_is_taken(folder: Path) -> None:
    """Pure ones, ones of any later Python, and ones of this Python and these processors."""
    require_package(CONSUMER, RUNTIME, folder, architecture=Architecture.ARM64)


def test_a_missing_package_is_refused_with_the_command_that_builds_it(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"

    assert _refusal(missing) == (
        f"Consumer('billing').runtime is \"Lambda(package='{missing}')\", allowed is a folder that is there; build it"
        " with `make package`"
    )


@pytest.mark.parametrize(
    ("removed", "allowed"),
    [
        ("sluice/messaging/__init__.py", "a folder that holds the package sluice"),
        ("shop/billing.py", "a folder that holds the module shop.billing"),
        ("shop/function.py", "a folder that holds the module shop.function"),
    ],
)
def test_a_package_that_lacks_a_module_is_refused(folder: Path, removed: str, allowed: str) -> None:
    (folder / removed).unlink()
    if removed.startswith("sluice"):
        (folder / removed).parent.rmdir()

    assert allowed in _refusal(folder)


@pytest.mark.parametrize(
    "tag",
    [
        "cp313-cp313-manylinux_2_17_x86_64",  # for other processors
        "cp312-cp312-manylinux_2_17_aarch64",  # for another Python
        "cp313-cp313-macosx_11_0_arm64",  # for another system
    ],
)
def test_a_wheel_that_would_not_run_there_is_refused_by_name(folder: Path, tag: str) -> None:
    _install(folder, "wrong-4.0", tag)

    assert "allowed is wheels for Python 3.13 on aarch64, and wrong-4.0 is for another; build it" in _refusal(folder)


def test_a_package_that_is_too_large_is_refused(folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(FUNCTION_PACKAGE_BYTES_MAX)  # a hole, which takes no room; the other files are the rest
    (folder / "shop" / "billing.py").write_text("more = 1\n")

    assert f"allowed is at most {FUNCTION_PACKAGE_BYTES_MAX:,} bytes, and it has" in _refusal(folder)


def test_a_package_is_zipped_for_arm_and_needs_no_docker(folder: Path, tmp_path: Path) -> None:
    """The entry point is as declared. The relay, which makes the tables, still runs an image."""
    app = cdk.App(context=CONTEXT, outdir=str(tmp_path / "cdk.out"), builtin_cloud_formation_validation=False)
    environment = Environment(
        name="dev", removal=Removal.DESTROY, image="worker:1", database=NewDatabase(), consumers=(CONSUMER,)
    )
    EnvironmentStage(app, environment=environment, project=tmp_path).synth()
    functions = of_kind(resources(read(tmp_path / "cdk.out")), "AWS::Lambda::Function")

    made = functions["ConsumersConsumerbillingFunction"]
    assert {name: made.get(name) for name in ("Runtime", "Handler", "Architectures", "PackageType")} == {
        "Runtime": "python3.13",
        "Handler": "shop.function.handle",
        "Architectures": ["arm64"],
        "PackageType": None,
    }
    assert made["Code"]["S3Key"].endswith(".zip")
