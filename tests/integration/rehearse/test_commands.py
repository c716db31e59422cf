"""`rehearse` on templates, at the command line: what it refuses, what it ends with, and that its forms say the same."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sluice.cli.main import main
from sluice.recorder import record
from sluice.rehearse import report
from tests.support import rehearsals
from tests.support.command_line import Run, command_line
from tests.support.histories.recorded_services import OrderService
from tests.support.project import PROJECT

pytestmark = pytest.mark.xdist_group("rehearsal")  # one worker compiles the simulation

STEPS = PROJECT / "tests/support/templates/scaling/visible_steps.yaml"
BACKLOG = PROJECT / "tests/support/templates/scaling/published_backlog.yaml"
WORK = ("--lanes", "1", "--handler-seconds", "0.1", "--latency", "120")
_ONE_TASK = """
Resources:
  Jobs: {Type: "AWS::SQS::Queue", Properties: {QueueName: jobs.fifo, FifoQueue: true}}
  Scaling:
    Type: AWS::ApplicationAutoScaling::ScalableTarget
    Properties:
      {MinCapacity: 1, MaxCapacity: 1, ResourceId: service/main/jobs, ScalableDimension: "ecs:service:DesiredCount"}
"""
PROFILE = """
duration_seconds: 120
messages_per_second: 2
group_count: 20
"""


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, wide_terminal: None
) -> Iterator[Run]:
    """Yield the command line, in a folder with a profile, a template without mistakes, and a broken one."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(PROFILE)
    text = (
        STEPS.read_text()
        .replace("Cooldown: 120", "Cooldown: 300")
        .replace('"sqs:Receive*",', '"sqs:Receive*", "ecs:*",')
    )
    Path("fine.yaml").write_text(text)
    Path("typo.yaml").write_text(text.replace("MessagesVisible", "Messages"))
    Path("untold.yaml").write_text(BACKLOG.read_text().replace("- {Name: QUEUE_URL, Value: !Ref Orders}", ""))
    Path("broken.yaml").write_text("Resources: [")
    Path("empty.yaml").write_text("Resources: {Queue: {Type: 'AWS::SQS::Queue'}}")
    Path("hollow").mkdir()
    with command_line(monkeypatch, capsys) as made:
        yield made


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("", "neither ENV nor --template is given, needed is one of them"),
        ("nowhere", "environment 'nowhere' is not declared, allowed is one of local, dev, staging, prod"),
        ("prod", "there is no cdk.json in "),
        ("--template fine.yaml", "needed are --lanes, --handler-seconds, --latency"),
        ("--template fine.yaml --lanes 1", "needed are --handler-seconds, --latency"),
        ("--template broken.yaml {work}", "cannot read broken.yaml: "),
        ("--template empty.yaml {work}", "the template scales no ECS service"),
        ("--template hollow {work}", "hollow has no *.template.json"),
        ("--template nowhere.yaml {work}", "Invalid value for '--template': Path 'nowhere.yaml' does not exist"),
        ("--template fine.yaml {work} --service other", "--service is 'other', allowed is one of Workers"),
        (
            f"--template {BACKLOG} {{work}}",
            "looks at Shop/Workers/BacklogPerTask, which is not simulated; say what it is",
        ),
        ("--template fine.yaml {work} --parameter Env", "--parameter is 'Env', allowed is NAME=VALUE"),
        ("--template fine.yaml {work} --parameter Env=dev", "--parameter names 'Env', which no template has; allowed"),
        ("--template fine.yaml {work} --parameters mine.yaml", "--parameters mine.yaml is not JSON"),
        (
            "--template typo.yaml {work}",
            "is not simulated; did you mean AWS/SQS/ApproximateNumberOfMessagesVisible? say",
        ),
        (
            "--template untold.yaml {work}",
            "which queue the tasks of orders receive from (Orders, Returns); name it with --queue",
        ),
        ("--template fine.yaml {work} --metric load", "'load' is not NAMESPACE/NAME=EXPRESSION"),
        ("--template fine.yaml {work} --metric Own/Load=visible+", "Invalid value for '--metric': "),
        ("--template fine.yaml {work} --metric Own/Load=seen", "names seen, allowed is any of visible, inflight, age"),
        ("--template fine.yaml {work} --profile nowhere", "there is no profile 'nowhere'"),
        ("--template fine.yaml {work} --recording hollow", "hollow"),
        ("--template fine.yaml {work} --recording nowhere", "Invalid value for '--recording': "),
        ("--template fine.yaml {work} --traffic rush", "Invalid value for '--traffic': 'rush' is not one of"),
        ("--template fine.yaml {work} --profile mine.yaml --traffic day", "--profile and --traffic are given, allowed"),
        (
            "--template fine.yaml {work} --profile mine.yaml --recording hollow --traffic day",
            "--profile and --recording and --traffic are given, allowed is one of them",
        ),
        (
            "--template fine.yaml --lanes 0 --handler-seconds 1 --latency 1",
            "'--lanes': it is '0', allowed is a whole number from 1 to 10000",
        ),
        (
            "--template fine.yaml --lanes 1 --handler-seconds nan --latency 1",
            "it is 'nan', allowed is a number of seconds",
        ),
        (
            "--template fine.yaml {work} --start-seconds nan",
            "it is 'nan', allowed is a number of seconds from 0 to 3600",
        ),
        ("--template fine.yaml {work} --seed -1", "'--seed': it is '-1', allowed is a whole number from 0"),
        ("prod --template fine.yaml", "service Workers is no consumer of the declaration, needed are --lanes"),
    ],
)
def test_wrong_input_is_refused_in_one_line(run: Run, arguments: str, line: str) -> None:
    """`{work}` stands for the options of a rehearsal that is right otherwise."""
    code, out, printed = run("rehearse", *arguments.format(work=" ".join(WORK)).split())

    assert code == 3, printed
    assert out == "", printed
    assert printed.count("\n") == 1, printed
    assert line in printed


_WITHOUT_A_LOAD_TEST = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from sluice.cli.main import main
main(sys.argv[1:])
"""
_NOT_TO_REHEARSE = ["spark_load", "pyspark", "py4j", "boto3", "botocore", "sqlalchemy", "structlog", "aws_cdk"]


def test_a_rehearsal_needs_neither_spark_nor_boto3_nor_a_database(run: Run) -> None:
    """The command reads the template, simulates, and draws the page without Spark, clients of AWS or a database."""
    program = _WITHOUT_A_LOAD_TEST.format(missing=_NOT_TO_REHEARSE)
    arguments = ["rehearse", "--template", "fine.yaml", *WORK, "--traffic", "sparse", "--page", "page.html"]

    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)

    assert ended.returncode == 0
    assert ended.stderr == "page: page.html\n"
    assert "LATENCY KEPT" in Path("page.html").read_text()


def test_an_option_names_a_queue_that_the_template_leaves_open(run: Run) -> None:
    """The template says not which of its two queues the tasks read; the formula of its own metric is given, too."""
    metric = ("--metric", "Shop/Workers/BacklogPerTask=(visible + inflight) / running")

    code, text, printed = run(
        "rehearse", "--template", "untold.yaml", *WORK, *metric, "--profile", "mine.yaml", "--queue", "their", "--json"
    )

    (document,) = json.loads(text)
    assert code == 1
    assert printed == ""
    assert document["service"] == "orders"
    assert document["assumed"] == []


def test_the_report_names_its_assumptions(run: Run) -> None:
    """The terminal, the JSON and the page name them.

    Here the queue's name is stored in SSM, which a rehearsal cannot read.
    """
    stored = Path("fine.yaml").read_text().replace("!GetAtt Jobs.QueueName", "'{{resolve:ssm:/shop/jobs}}'")
    Path("stored.yaml").write_text(stored)
    arguments = ("rehearse", "--template", "stored.yaml", *WORK, "--profile", "mine.yaml")

    _, out, _ = run(*arguments, "--page", "page.html")
    _, text, _ = run(*arguments, "--json")

    assumed = json.loads(text)[0]["assumed"]
    assert [line for line in out.splitlines() if line.startswith("not known: ")] == [
        f"not known: {sentence}" for sentence in assumed
    ]
    assert [sentence.partition(", which")[0] for sentence in assumed] == [
        "policy scale-out looks at QueueName <resolve:ssm:/shop/jobs>",
        "policy scale-in looks at QueueName <resolve:ssm:/shop/jobs>",
    ]
    assert "Workers: not known: policy scale-out looks at QueueName" in Path("page.html").read_text()
    assert "wrong-queue" not in out


@pytest.mark.slow  # half a minute of simulated days
def test_services_with_equal_results_are_printed_once_and_all_in_json(run: Run) -> None:
    """Two stages are alike, the third one has another bound."""
    text = Path("fine.yaml").read_text()
    for stage in ("dev", "test", "prod"):
        Path(f"stages/{stage}").mkdir(parents=True)
        most = text.replace("!FindInMap [Tasks, !Ref Stage, most]", "3") if stage == "prod" else text
        Path(f"stages/{stage}/{stage}.yaml").write_text(most)
    arguments = ("rehearse", "--template", "stages", *WORK, "--traffic", "sparse")

    _, out, _ = run(*arguments)
    _, document, _ = run(*arguments, "--json")

    found = json.loads(document)
    assert [line.split(": ")[0] for line in out.splitlines() if " tasks, policies: " in line] == [
        "dev/Workers, test/Workers",
        "prod/Workers",
    ]
    assert [each["service"] for each in found] == ["dev/Workers", "prod/Workers", "test/Workers"]
    assert [each["max_tasks"] for each in found] == [12, 3, 12]
    assert found[0]["rows"] == found[2]["rows"]


@pytest.mark.slow  # simulated days
def test_a_narrow_terminal_shows_the_verdict_the_latency_and_the_cost(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 120 columns five columns of the table are left."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")

    _, out, _ = run("rehearse", "--template", "fine.yaml", *WORK, "--traffic", "sparse")

    (row, *_) = _rows(re.sub(r"\x1b\[[0-9;]*m", "", out))
    assert [row[0], row[1], row[4]] == ["sparse", "deployed", "kept: 120 s"]
    assert len(row) == 5


def test_a_damaged_recording_ends_with_the_code_for_unknown(run: Run) -> None:
    """A recording that cannot be read is no wrong input, which would be 3."""
    (Path("hollow") / "a.arrows").write_bytes(b"nonsense")

    code, out, printed = run("rehearse", "--template", "fine.yaml", *WORK, "--recording", "hollow")

    assert code == 2, printed
    assert out == "", printed
    assert printed.count("\n") == 1, printed


@pytest.mark.parametrize(
    ("template", "work", "code"),
    [
        ("fine.yaml", WORK, 0),
        ("fine.yaml", (*WORK[:4], "--latency", "0.1"), 99),
        (str(STEPS), WORK, 1),
        (str(STEPS), (*WORK[:4], "--latency", "0.1"), 1),
    ],
    ids=["fine", "late", "a mistake", "a mistake, and late"],
)
def test_the_exit_code_follows_from_the_verdict(run: Run, template: str, work: Sequence[str], code: int) -> None:
    """A handler of 0.1 s occupies its lane for 0.12 s, with the time between two messages."""
    ended, out, printed = run("rehearse", "--template", template, *work, "--profile", "mine.yaml")

    assert ended == code
    assert printed == ""
    assert ("mistake scale-in-without-protection in Workers: " in out) == (code == 1)
    assert ("missed: 0.1 s" in out) == ("0.1" in work[-1:])


def _rows(out: str) -> list[list[str]]:
    """Return the cells of a printed table."""
    return [
        [cell.strip() for cell in line.strip("│ \n").split("│")] for line in out.splitlines() if line.startswith("│")
    ]


def test_the_json_says_the_same_as_the_table(run: Run) -> None:
    """Row for row: the same traffic, policy, figures and verdict; a metric of one's own is given."""
    work = ("--lanes", "1", "--handler-seconds", "1", "--latency", "30")
    metric = ("--metric", "Shop/Workers/BacklogPerTask=visible / running")
    arguments = ("rehearse", "--template", str(BACKLOG), *work, *metric, "--profile", "mine.yaml")

    code, out, _ = run(*arguments)
    json_code, text, _ = run(*arguments, "--json")

    (document,) = json.loads(text)
    assert code == json_code == 1
    assert document["service"] == "orders"
    assert document["min_tasks"] == 2
    assert document["max_tasks"] == 40
    assert out.startswith("orders: 2 to 40 tasks, policies: backlog\n")
    assert [_cells(row) for row in document["rows"]] == [
        [row[0], row[1], row[4], *row[6:15], row[15].split(":")[0]] for row in _rows(out)
    ]
    assert len(document["rows"]) > 5
    assert re.findall("^mistake (.*) in ", out, re.MULTILINE) == [each["name"] for each in document["mistakes"]]


def _cells(row: dict[str, Any]) -> list[str]:
    """Return what the table shows of a row of the JSON."""
    variant = "" if row["variant"] == "3 and 15 minutes" else f", {row['variant']}"
    return [
        row["traffic"],
        f"{row['policy']}{variant}",
        f"{row['task_hours']:,.1f}",
        *(report.seconds(row[f"{name}_seconds"]) for name in ("p50", "p95", "p99", "oldest", "first_task")),
        str(row["flaps"]),
        f"{row['cut_short']:,}",
        f"{row['dead_lettered']:,}",
        f"{row['left']:,}",
        "missed" if row["is_missed"] else "kept",
    ]


def test_the_same_seed_gives_the_same_answer_and_another_does_not(run: Run) -> None:
    """All chance of the traffic comes from the seed."""
    arguments = ("rehearse", "--template", "fine.yaml", *WORK, "--profile", "mine.yaml", "--json", "--seed")

    first, again, other = (run(*arguments, seed)[1] for seed in ("7", "7", "8"))

    assert first == again
    assert first != other


def test_a_recording_is_rehearsed(run: Run) -> None:
    """Twelve orders of three customers, handled in 0.12 s each; every variant and alternative besides."""
    shop = OrderService()
    with record(shop.clients, Path("tuesday"), clock=shop.simulator.clock):
        shop.trade()

    code, text, printed = run("rehearse", "--template", "fine.yaml", *WORK, "--recording", "tuesday", "--json")

    (document,) = json.loads(text)
    assert code == 0
    assert printed == ""
    assert {row["traffic"] for row in document["rows"]} == {"tuesday"}
    assert {row["left"] for row in document["rows"]} == {0}
    assert document["rows"][0]["is_deployed"]
    assert document["rows"][0]["p95_seconds"] < 2


@pytest.mark.slow  # three rehearsals
def test_a_profile_made_of_a_recording_is_rehearsed_as_the_recording_is(run: Run) -> None:
    """240 orders in four minutes; at twice the speed in two."""
    shop = OrderService()
    with record(shop.clients, Path("tuesday"), clock=shop.simulator.clock):
        for number in range(240):
            shop.order(f"customer-{number % 7}", number)
            shop.simulator.clock.sleep(1)
    for name, speed in (("traced", "1"), ("twice", "2")):
        assert run("load", "profile-from", "tuesday", "-o", f"{name}.yaml", "--speed", speed)[0] == 0

    recorded, traced, twice = (
        json.loads(run("rehearse", "--template", "fine.yaml", *WORK, *traffic, "--json")[1])[0]["rows"]
        for traffic in (("--recording", "tuesday"), ("--profile", "traced.yaml"), ("--profile", "twice.yaml"))
    )

    assert [{**row, "traffic": "traced"} for row in recorded] == traced
    in_time, by_work = (
        [
            [row["task_hours"] for row in rows if ("Lambda function's" in row["policy"]) == is_lambda]
            for rows in (traced, twice)
        ]
        for is_lambda in (False, True)
    )
    assert in_time[1] == pytest.approx([hours / 2 for hours in in_time[0]])
    assert by_work[1] == pytest.approx(by_work[0]), "an invocation is paid for while it works"


@pytest.mark.slow  # simulated days
def test_a_kind_of_traffic_that_is_named_twice_is_tried_once(run: Run) -> None:
    """The same --traffic is given twice; no policy and variant has two rows."""
    _, text, _ = run("rehearse", "--template", "fine.yaml", *WORK, "--json", *["--traffic", "steady"] * 2)

    rows = [(row["policy"], row["variant"]) for row in json.loads(text)[0]["rows"]]
    assert len(rows) == len(set(rows))


def test_only_a_terminal_shows_the_progress(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal standard error is empty, as the tests above show."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")

    _, _, printed = run("rehearse", "--template", "fine.yaml", *WORK, "--profile", "mine.yaml")

    assert "100 %" in printed


def test_a_profile_with_too_much_traffic_misses_its_latency_although_it_ends(run: Run) -> None:
    """Two messages a second for two minutes, 2 s each, on one task: all but the first are handled after the end."""
    code, text, _ = run(
        "rehearse", "--template", "fine.yaml", "--lanes", "1", "--handler-seconds", "2", "--latency", "60",
        "--profile", "mine.yaml", "--json",
    )  # fmt: skip

    deployed = json.loads(text)[0]["rows"][0]
    assert code == 99
    assert deployed["p95_seconds"] > 60


def test_the_command_draws_the_page_of_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Task-hours and latencies of the page's table are those of the JSON, in the same order."""
    template, page = tmp_path / "template.yaml", tmp_path / "page.html"
    template.write_text(_ONE_TASK, encoding="utf-8")
    work = "--queue jobs.fifo --lanes 2 --handler-seconds 1 --latency 60"
    arguments = f"rehearse --template {template} {work} --traffic sparse --json"

    main([*arguments.split(), "--page", str(page)])

    (service,) = json.loads(capsys.readouterr().out)
    text = page.read_text(encoding="utf-8")
    assert f"<h1>sluice {arguments} --page {page}</h1>" in text
    assert [row[5] for row in rehearsals.table(text)[1:]] == [f"{row['task_hours']:,.1f}" for row in service["rows"]]
    assert [row[8] for row in rehearsals.table(text)[1:]] == [
        report.seconds(row["p95_seconds"]) for row in service["rows"]
    ]
