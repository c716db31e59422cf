"""docs/conformance.md, .html and .json, from docs/results/conformance.json, which `make conformance` writes.

Git has the results and the Markdown page; `make docs` writes the others. The results have one line for each target,
and one for each promise: its test, and what the targets did that do not keep it. A sentence, an area and a grade are
the catalogue's.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from contract_tests.promises import PROMISES, Promise

type Matrix = Mapping[str, Any]
STATUSES = ("holds", "deviates", "not supported", "unknown")
MEANINGS = {
    "holds": "the promise's test passed",
    "deviates": "an expectation of the test failed",
    "not supported": "the target lacks the action, or the means to see the promise",
    "unknown": "no answer that proves anything: an error, a crash, a timeout",
}
RESULTS = Path("results/conformance.json")
_CONTAINERS = """\
## Emulators in containers

Floci, the AWS Emulator of November 2026 and fakecloud install from none of the registries that `make conformance` uses,
so they are no columns. Anybody with a container runtime, and a checkout of Sluice, can measure them:

```
docker run --rm -p 127.0.0.1:4566:4566 floci/floci:latest                  # Floci
docker run --rm -p 127.0.0.1:4566:4566 ghcr.io/faiscadev/fakecloud:latest  # or fakecloud
sluice conformance --endpoint Floci=http://127.0.0.1:4566
```

The AWS Emulator comes from AWS itself: start it as its page says, and name the address that it prints. The result is a
page like this one, in `runs/conformance/`. Name an exact version in place of `latest`, start one emulator at a time,
and bind its port to the loopback. With `--only localstack-2026.3.0` beside `--endpoint` the page compares the two.
Nobody ran these commands for this page.
"""
_TEMPLATE = Path(__file__).resolve().parent / "conformance_template.html"


def write(matrix: Matrix, folder: Path) -> None:
    """Write the results, and the pages that are made from them, into a folder."""
    texts = {
        RESULTS: results(matrix),
        Path("conformance.md"): markdown(matrix),
        **{path: make(matrix) for path, make in BUILT.items()},
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def results(matrix: Matrix) -> str:
    """Return the matrix as JSON without the promises' own texts, one line for each promise.

    A promise that holds on a target is left out for that target.
    """
    rows = {}
    for row in matrix["promises"]:
        found = row["results"]
        tests = {result["evidence"] for result in found.values() if result["status"] == "holds"}
        broken = {name: list(result.values()) for name, result in found.items() if result["status"] != "holds"}
        assert len(tests) <= 1, f"{row['id']} has tests of two names"
        rows[row["id"]] = {"test": next(iter(tests), None)} | broken
    return _lines(matrix["date"], matrix["targets"], [{"id": id_} | row for id_, row in rows.items()])


def dump(matrix: Matrix) -> str:
    """Return the whole matrix as JSON, one row a line."""
    return _lines(matrix["date"], matrix["targets"], matrix["promises"])


def _lines(date: str, targets: Sequence[Any], promises: Sequence[Any]) -> str:
    """Return JSON with one line for each target and each promise, so that git shows a change as one line."""
    lines = [f'{{"date": {json.dumps(date)}']
    for name, rows in (("targets", targets), ("promises", promises)):
        written = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        lines.append(f'"{name}": [\n{written}\n]')
    return ",\n".join(lines) + "}\n"


def read_matrix(folder: Path) -> dict[str, Any]:
    """Return the matrix of the results in a folder, without promises that no longer exist."""
    found: dict[str, Any] = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    names = [target["name"] for target in found["targets"]]
    rows = []
    for row in found["promises"]:
        if row["id"] in PROMISES:
            of_targets = {name: row.get(name, ("holds", row["test"])) for name in names}
            cells = {name: {"status": status, "evidence": text} for name, (status, text) in of_targets.items()}
            rows.append(describe(PROMISES[row["id"]]) | {"results": cells})
    return found | {"promises": rows}


def describe(promise: Promise) -> dict[str, Any]:
    """Return the promise's own part of its row in the matrix."""
    return {
        "id": promise.id,
        "area": promise.area,
        "statement": promise.statement,
        "grade": promise.grade.value,
    }


def counts(matrix: Matrix) -> dict[str, Counter[str]]:
    """Return how many promises have which status, by the target's name."""
    return {
        target["name"]: Counter(row["results"][target["name"]]["status"] for row in matrix["promises"])
        for target in matrix["targets"]
    }


def _areas(matrix: Matrix) -> list[str]:
    return list(dict.fromkeys(row["area"] for row in matrix["promises"]))


def markdown(matrix: Matrix) -> str:
    """Return docs/conformance.md."""
    targets, count = matrix["targets"], counts(matrix)
    names = [_title(target) for target in targets]
    lines = [
        "# Conformance",
        "",
        f"{len(matrix['promises'])} promises on {len(targets)} targets. Generated by `make conformance`; do not edit.",
        "",
        f"Run on {matrix['date']}.",
        "",
        "`make docs` writes the same page with the evidence of every cell, to search and filter (`conformance.html`),",
        "and as data (`conformance.json`). What each promise says about AWS, and how we know:",
        "[promises.md](promises.md). AWS itself is not a column: nothing here has run there.",
        "",
        *(f"- *{status}*: {meaning}" for status, meaning in MEANINGS.items()),
        "",
        "*On AWS* is the grade of the evidence that AWS itself keeps the promise: recorded, asserted, old, reported,",
        "documented or open, the strongest first. What deviates from one that is only documented or open may do as",
        "AWS does; no such verdict rests on the code or the text of an error.",
        "",
        "The promises of event source mappings are not here: their tests play the function, and only the simulator and",
        "a LocalStack that the test run itself starts let them. `pytest contract_tests --target simulator` tests them.",
        "",
        f"| target | {' | '.join(STATUSES)} | note |",
        "|---|---:|---:|---:|---:|---|",
        *(
            f"| {name} | {' | '.join(str(count[target['name']][status]) for status in STATUSES)} | {target['note']} |"
            for name, target in zip(names, targets, strict=True)
        ),
    ]
    lines += ["", *_CONTAINERS.splitlines()]
    for area in _areas(matrix):
        lines += ["", f"## {area}", "", f"| id | promise | on AWS | {' | '.join(names)} |"]
        lines.append(f"|---|---|---|{'---|' * len(names)}")
        for row in matrix["promises"]:
            if row["area"] == area:
                cells = [_cell(row["results"][target["name"]]["status"]) for target in targets]
                statement = row["statement"].replace("|", "\\|")
                lines.append(f"| {row['id']} | {statement} | {row['grade']} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(status: str) -> str:
    return status if status == "holds" else f"**{status}**"


def html(matrix: Matrix) -> str:
    """Return docs/conformance.html: one file, which asks the network for nothing."""
    targets = matrix["targets"]
    parts = {
        "date": escape(matrix["date"]),
        "promise_count": str(len(matrix["promises"])),
        "target_count": str(len(targets)),
        "target_cols": '<col class="target">' * len(targets),
        "area_options": "\n".join(f"<option>{escape(area)}</option>" for area in _areas(matrix)),
        "target_options": "\n".join(
            f'<option value="{escape(target["name"])}">{escape(_title(target))}</option>' for target in targets
        ),
        "status_options": "\n".join(f"<option>{status}</option>" for status in STATUSES),
        "meanings": "\n".join(
            f'<div><dt><span class="status {_class(status)}">{status}</span></dt><dd>{escape(meaning)}</dd></div>'
            for status, meaning in MEANINGS.items()
        ),
        "summary_head": "".join(f'<th scope="col" class="number">{status}</th>' for status in STATUSES),
        "summary_rows": "\n".join(_summary(target, counts(matrix)[target["name"]]) for target in targets),
        "target_heads": "\n".join(
            f'<th scope="col" class="target">{escape(target["title"])} <small>{escape(target["version"])}</small></th>'
            for target in targets
        ),
        "rows": "\n".join(_area(matrix, area) for area in _areas(matrix)),
    }
    template = _TEMPLATE.read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _title(target: Mapping[str, str]) -> str:
    return f"{target['title']} {target['version']}".rstrip()


def _prose(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _class(status: str) -> str:
    return status.replace(" ", "-")


def _summary(target: Mapping[str, str], count: Counter[str]) -> str:
    name = escape(target["name"])
    numbers = "".join(
        f'<td class="number"><button type="button" data-target="{name}" data-status="{status}"'
        f' aria-label="{count[status]} {status} on {escape(_title(target))}: show them">{count[status]}</button></td>'
        for status in STATUSES
    )
    bar = "".join(
        f'<span class="{_class(status)}" style="flex:{count[status]}"></span>' for status in STATUSES if count[status]
    )
    return (
        f'<tr><th scope="row">{escape(_title(target))}</th>{numbers}'
        f'<td class="share"><span class="bar" aria-hidden="true">{bar}</span></td>'
        f'<td class="note">{escape(target["note"])}</td></tr>'
    )


def _area(matrix: Matrix, area: str) -> str:
    rows = [row for row in matrix["promises"] if row["area"] == area]
    columns = len(matrix["targets"]) + 2
    head = f'<tr class="area"><th scope="rowgroup" colspan="{columns}">{escape(area)}</th></tr>'
    return "\n".join(
        [f'<tbody data-area="{escape(area)}">', head, *(_promise(row, matrix["targets"]) for row in rows), "</tbody>"]
    )


def _promise(row: Mapping[str, Any], targets: list[Mapping[str, str]]) -> str:
    id_, results = escape(row["id"]), row["results"]
    cells = "".join(
        f'<td class="target" data-target="{escape(target["name"])}" data-title="{escape(_title(target))}">'
        f'<span class="status {_class(results[target["name"]]["status"])}">'
        f"{results[target['name']]['status']}</span></td>"
        for target in targets
    )
    evidence = "".join(
        f'<div><dt>{escape(_title(target))} <span class="status {_class(results[target["name"]]["status"])}">'
        f"{results[target['name']]['status']}</span></dt><dd>{escape(results[target['name']]['evidence'])}</dd></div>"
        for target in targets
    )
    return (
        f'<tr class="promise" id="{id_}"><td class="id"><button type="button" aria-expanded="false"'
        f' aria-controls="evidence-{id_}">{id_}</button></td>'
        f'<th scope="row">{_prose(row["statement"])} <small>{escape(row["grade"])}</small></th>{cells}</tr>\n'
        f'<tr class="evidence" id="evidence-{id_}" hidden><td></td><td colspan="{len(targets) + 1}">'
        f"<dl>{evidence}</dl></td></tr>"
    )


BUILT: Mapping[Path, Callable[[Matrix], str]] = {
    Path("conformance.html"): html,
    Path("conformance.json"): dump,
}
"""What is made of the results and is not in git."""
