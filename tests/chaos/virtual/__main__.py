"""`python -m tests.chaos.virtual`: many seeds of virtual runs, and what fails cut down."""

import sys
from collections import Counter

import click
import yaml

from spark_load.faults.drawing import count_by_kind
from spark_load.faults.shapes import SHAPES, Shape
from tests.chaos.virtual.running import result, witness
from tests.chaos.virtual.variants import VARIANTS, story_of


@click.command()
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1), default=200, show_default=True, help="How many.")
@click.option("--messages", type=click.IntRange(1), default=24, show_default=True, help="Of each run.")
@click.option("--faults", "shape", type=click.Choice(list(SHAPES)), default="chaos", show_default=True)
@click.option("--variant", type=click.Choice(list(VARIANTS)), default="sound", show_default=True)
@click.option("--shrink", is_flag=True, help="Cut the first that fails down, and print it.")
def main(*, first: int, seeds: int, messages: int, shape: Shape, variant: str, shrink: bool) -> None:
    """Run many seeds; ends with 1 when one is invalid, 2 when one came to no end."""
    hits, scheduled, events = Counter[str](), Counter[str](), 0
    invalid, unfinished = list[int](), list[int]()
    with click.progressbar(range(first, first + seeds), label=variant, file=sys.stderr) as progress:
        for seed in progress:
            whole = story_of(variant)(seed, shape=shape, messages=messages)
            found = result(whole, variant)
            hits, events = hits + found.hits, events + found.events
            scheduled.update({str(kind): count for kind, count in count_by_kind(whole.faults).items()})
            if found.violations:
                invalid.append(seed)
                click.echo(f"\nseed {seed}: INVALID: {found.violations[0]} ({len(found.violations)} in all)")
            elif found.unfinished:
                unfinished.append(seed)
                click.echo(f"\nseed {seed}: {found.unfinished}")
    click.echo(f"{variant}: {seeds} schedules, {events} events, {len(invalid)} invalid, {len(unfinished)} unfinished")
    click.echo(f"{'fault':<12}{'scheduled':>10}{'struck':>10}")
    for kind in sorted(scheduled):
        click.echo(f"{kind:<12}{scheduled[kind]:>10,}{hits[kind]:>10,}")
    if invalid and shrink:
        whole = story_of(variant)(invalid[0], shape=shape, messages=messages)
        least = witness(whole, variant)
        click.echo(
            f"seed {invalid[0]}: from {len(whole.faults)} faults and {len(whole.publishes)} messages to"
            f" {len(least.story.faults)} and {len(least.story.publishes)}, in {least.tries} tries"
        )
        click.echo(yaml.safe_dump(least.as_profile(), sort_keys=False))
    sys.exit(1 if invalid else 2 if unfinished else 0)


if __name__ == "__main__":
    main()
