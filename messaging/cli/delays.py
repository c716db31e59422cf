"""`python -m messaging delays`."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sluice.delays import measured, percentile
from sluice.errors import ConfigError


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def delays(folder: Path, as_json: bool) -> None:
    """Tell where the time went in the recorded history of FOLDER: outbox wait, API time, receive wait."""
    from wire.journal import SUFFIX, events_of, read_journal  # noqa: PLC0415 (pyarrow is loaded by those who record)

    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise ConfigError(f"{folder} holds no journals (*{SUFFIX}); name the folder given to --record")
    found = measured([event for path in paths for event in events_of(read_journal(path))])
    parts = {"outbox wait": found.outbox_wait, "API time": found.api_time, "receive wait": found.receive_wait}
    rows = {
        name: {"count": len(values), **{f"p{share}": percentile(values, share / 100) for share in (50, 95, 99)}}
        for name, values in parts.items()
    }
    if as_json:
        click.echo(json.dumps({"unit": "seconds", "delays": rows}, indent=2))
        return
    shown = Table("delay", "messages", "p50", "p95", "p99")
    for name, row in rows.items():
        shown.add_row(name, str(row["count"]), *(_seconds(row[f"p{share}"]) for share in (50, 95, 99)))
    Console().print(shown)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"
