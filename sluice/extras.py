"""Which parts of Sluice need which packages: `pip install 'sluice-fifo[worker]'` installs what workers need, no more.

The names and what each brings stand in pyproject.toml. What a missing package needs is said in one line that names the
extra, wherever it is missed.
"""

from collections.abc import Mapping

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "worker": ("boto3", "botocore", "psycopg", "sqlalchemy", "structlog"),
    "recorder": ("numpy", "pyarrow"),
    "checker": ("altair", "pandas", "vl_convert"),
    "cdk": ("aws_cdk", "cdk_nag", "constructs"),
    "contracts": ("localstack_client", "pytest", "xdist"),
    "load": ("google", "grpc", "grpc_status", "py4j", "pydantic", "pyspark", "yaml", "zstandard"),
}
"""Extra to the modules that are there when it is installed; the first extra that has a module is the one named."""


class MissingExtraError(ImportError):
    """Raised when a part of Sluice is used whose packages are not installed."""


def missing(module: str, part: str | None = None) -> str | None:
    """Return the line that says which extra brings a module; None of a module that no extra brings.

    Args:
        module: what could not be imported.
        part: extra that the caller belongs to, where it is known: named first if it brings the module.
    """
    top = module.partition(".")[0]
    found = [extra for extra, modules in EXTRAS.items() if top in modules]
    if not found:
        return None
    extra = part if part is not None else found[0]
    return f"{top} is not installed, which this needs; pip install 'sluice-fifo[{extra}]'"
