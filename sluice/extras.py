"""Which parts of Sluice need which packages: `pip install 'sluice-fifo[worker]'` installs what workers need, no more.

The names and what each brings stand in pyproject.toml. What a missing package needs is said in one line that names the
extra, wherever it is missed.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence

_WORKER = ("boto3", "botocore", "psycopg", "sqlalchemy", "structlog")
_CHECKER = ("altair", "numpy", "pandas", "pyarrow", "pydantic", "vl_convert", "yaml")
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "worker": _WORKER,
    "events": (*_WORKER, "pydantic"),
    "recorder": ("boto3", "botocore", "numpy", "pyarrow"),
    "checker": _CHECKER,
    "cdk": ("aws_cdk", "cdk_nag", "constructs"),
    "contracts": ("boto3", "botocore", "localstack_client", "pytest", "pytest_timeout", "xdist"),
    "lambda": (*_WORKER, "awslambdaric"),
    "testing": (*_WORKER, "pytest"),
    "django": (*_WORKER, "django"),
    "load": (*_WORKER, *_CHECKER, "google", "grpc", "grpc_status", "numba", "py4j", "pyspark", "zstandard"),
    "rehearse": (*_CHECKER, "lark", "numba"),
    "ui": (*_WORKER, "altair", "jinja2", "markupsafe", "starlette", "uvicorn", "vl_convert"),
}
"""Extra to the modules that are there when it is installed. Where it is not known which is meant, the first counts."""
_IN_A_CHECKOUT = "emulator"


class MissingExtraError(ImportError):
    """Raised when a part of Sluice is used whose packages are not installed; the message names the extra."""


def facade(package: str, extra: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return a package's `__getattr__`, which imports each public name when it is first used.

    Args:
        package: its `__name__`.
        extra: whose packages its modules need.
        modules: module below it to the names that are taken from there.

    Raises:
        MissingExtraError: by what is returned: a package is not installed.
    """
    places = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def get(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            found = getattr(importlib.import_module(places[name]), name)
        except ModuleNotFoundError as error:
            needed = None if error.name is None else missing(error.name, extra)
            if needed is None:
                raise
            raise MissingExtraError(f"{package}.{name}: {needed}") from error
        setattr(sys.modules[package], name, found)
        return found

    return get


def missing(module: str, extra: str | None = None) -> str | None:
    """Return the line that says which extra brings a module; None of a module that no extra brings.

    Args:
        module: what could not be imported.
        extra: of the part that needs it, which is named if it brings the module; None where that is not known.
    """
    top = module.partition(".")[0]
    if top == _IN_A_CHECKOUT:
        return "this starts emulators, which needs a checkout of Sluice; run it there"
    found = [name for name, modules in EXTRAS.items() if top in modules]
    if not found:
        return None
    named = extra if extra in found else found[0]
    return f"{top} is not installed, which this needs; pip install 'sluice-fifo[{named}]'"
