"""`sluice delays`: where the time went in a recorded history."""

from pathlib import Path

import click

from sluice.cli.options import json_option
from sluice.errors import ConfigError
from sluice.history.delays import measured, percentile
from sluice.terminal import output


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def delays(folder: Path, as_json: bool) -> None:
    """Show where the time went in the recorded history of FOLDER: outbox wait, API time, receive wait."""
    from sluice.recorder.journal import SUFFIX, events_of, read_journal

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
        output.as_json({"unit": "seconds", "delays": rows})
        return
    output.table(
        ("delay", "messages", "p50", "p95", "p99"),
        [(name, row["count"], *(_seconds(row[f"p{share}"]) for share in (50, 95, 99))) for name, row in rows.items()],
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"
