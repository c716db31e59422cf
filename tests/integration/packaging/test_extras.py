"""Each extra, alone in a clean environment, does its job; without it, one line names it.

The wheel is built once. Nothing that runs here sees this checkout: no PYTHONPATH, no SLUICE_*, a folder of its own.
"""

import json
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice.extras import EXTRAS
from tests.integration.packaging.conftest import KEYS, run, run_to_end
from tests.support.endpoints import fake_aws
from tests.support.project import PROJECT

pytestmark = pytest.mark.xdist_group("packaging")  # one worker builds the wheel

_DECLARATION = """
from sluice.declaration import Consumer, Environment, Removal

ENVIRONMENTS = (
    Environment(
        name="local",
        account="000000000000",
        removal=Removal.DESTROY,
        consumers=(Consumer(name="billing", handlers="shop"),),
    ),
)
"""
_HANDLERS = """
from sqlalchemy import text
from sluice.messaging import handler

@handler("order.placed")
def bill(session, event, context):
    session.execute(text("INSERT INTO bill VALUES (:cents)"), event.data)
"""
_PRODUCER = """
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines

engine = engines.engine("sqlite:///shop.db")
with engine.begin() as connection:
    connection.execute(text("CREATE TABLE bill (cents INTEGER)"))
outbox = Outbox("sluice-local-events.fifo")
with Session(engine) as session:
    outbox.add(session, Event(type="order.placed", group="order-7", data={"cents": 1250}))
    session.commit()
"""
_TYPED = """
from sqlalchemy.orm import Session
from sluice.declaration import Consumer, Environment
from sluice.messaging import Ack, Context, Event, Outbox, Outcome, database_engine, handler

outbox = Outbox("sluice-local-events.fifo")
shop = Environment(name="dev", account="000000000000", consumers=(Consumer(name="billing", handlers="shop"),))

@handler("order.placed")
def bill(session: Session, event: Event, context: Context) -> Outcome:
    outbox.add(session, Event(type="order.billed", group=event.group, data={"attempt": context.attempt}))
    return Ack()

with Session(database_engine("eu-central-1")) as session:
    outbox.add(session, "no event")
"""
_TRAFFIC = """
import boto3, os
sqs, sns = (boto3.client(name, endpoint_url=os.environ["ENDPOINT"]) for name in ("sqs", "sns"))
topic = sns.create_topic(Name="sluice-local-events.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
url = sqs.get_queue_url(QueueName="sluice-local-billing.fifo")["QueueUrl"]
for number in range(5):
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)}
    sns.publish(TopicArn=topic, Message=str(number), **ids)
received = {"QueueUrl": url, "WaitTimeSeconds": 1, "MessageSystemAttributeNames": ["All"]}
while messages := sqs.receive_message(**received).get("Messages"):
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
"""
_APP = """
import aws_cdk as cdk
from environments import ENVIRONMENTS
from sluice.constructs.fan_out import Fanout

app = cdk.App(outdir="cdk.out")
Fanout(cdk.Stack(app, "Shop"), "Fanout", environment=ENVIRONMENTS[0])
app.synth()
"""
_TEST = """
def test_each_event_has_one_effect(worker_harness):
    seen = []
    harness = worker_harness(lambda session, event, context: seen.append(event.data))
    harness.publish("order.placed", "order-7", 1250)
    harness.crash_after_commit()
    harness.run()
    harness.redeliver()
    assert seen == [1250]
"""


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel and one extra, and a folder with somebody's project in it."""

    environment: Path
    project: Path

    def sluice(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run(self.environment / "bin" / "sluice", *arguments, cwd=self.project, **variables)

    def run_to_end(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command, which has to end with 0."""
        return run_to_end(self.environment / "bin" / "sluice", *arguments, cwd=self.project, **variables)

    def python(self, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_to_end(self.environment / "bin" / "python", "-c", program, cwd=self.project, **variables)


@pytest.fixture
def install(environment_with: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Installation]:
    """Return what installs an extra beside a project of somebody's own."""
    (tmp_path / "environments.py").write_text(_DECLARATION, encoding="utf-8")
    return lambda extra: Installation(environment_with(extra), tmp_path)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_aws.Endpoint]:
    """Yield SQS and SNS on a port, with the topic and queues of the project's environment."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    namespace: dict[str, Any] = {}
    exec(_DECLARATION, namespace)  # noqa: S102 (ours, above)
    with fake_aws.running() as found:
        found.deploy(namespace["ENVIRONMENTS"][0], visibility_timeout_seconds=None)
        yield found


def require_all_modules(installed: Installation, modules: Sequence[str]) -> None:
    """Check that an extra brings what `sluice.extras` says of it."""
    program = "import importlib.util, sys; print(*[m for m in sys.argv[1:] if not importlib.util.find_spec(m)])"
    ended = run_to_end(installed.environment / "bin" / "python", "-c", program, *modules, cwd=installed.project)
    assert ended.stdout.split() == []


def test_without_an_extra_every_command_is_listed_and_names_what_it_needs(
    install: Callable[[str], Installation],
) -> None:
    """One line on standard error and exit code 3; `from sluice.messaging import Outbox` raises the same line."""
    base = install("")
    needs: Mapping[str, str] = {
        "check .": "checker",
        "compare . .": "checker",
        "conformance": "contracts",
        "contracts --target simulator": "contracts",
        "delays .": "recorder",
        "events check --sends shop": "events",
        "dlq ls": "worker",
        "inbox check": "worker",
        "load plan smoke": "load",
        "outbox ls": "worker",
        "record journal -- true": "recorder",
        "relay": "worker",
        "report .": "checker",
        "schema apply": "worker",
        "ui": "ui",
        "worker --consumer billing": "worker",
    }

    listed = base.run_to_end("--help").stdout
    for command, extra in needs.items():
        assert f"\n  {command.partition(' ')[0]} " in listed
        ended = base.sluice(*command.split())
        lines = ended.stderr.splitlines()
        assert ended.returncode == 3, (command, ended)
        assert ended.stdout == "", (command, ended)
        assert len(lines) == 1, (command, ended)
        assert lines[0].endswith(f"pip install 'sluice-fifo[{extra}]'"), (command, lines)

    imported = base.python(
        "from sluice.extras import MissingExtraError\n"
        "try:\n    from sluice.messaging import Outbox\n"
        "except MissingExtraError as error: print(error)"
    )
    assert imported.stdout == (
        "sluice.messaging.Outbox: sqlalchemy is not installed, which this needs; pip install 'sluice-fifo[worker]'\n"
    )


@pytest.mark.slow  # an environment of its own; a new project's order goes the same way
def test_worker_publishes_from_the_outbox_and_handles(
    install: Callable[[str], Installation], endpoint: fake_aws.Endpoint
) -> None:
    shop = install("worker")
    (shop.project / "shop.py").write_text(_HANDLERS, encoding="utf-8")
    index = ("--dsn", "sqlite:///shop.db")

    shop.run_to_end("schema", "apply", *index)
    shop.python(_PRODUCER)
    shop.run_to_end("relay", "--until-empty", "--endpoint-url", endpoint.url, *index)
    shop.run_to_end("worker", "--consumer", "billing", "--until-idle", "1", "--endpoint-url", endpoint.url, *index)

    found = shop.python("import sqlite3; print(sqlite3.connect('shop.db').execute('SELECT * FROM bill').fetchall())")
    assert found.stdout == "[(1250,)]\n"
    require_all_modules(shop, EXTRAS["worker"])


@pytest.mark.slow  # mypy of a project; its own modules are checked by make lint
def test_somebodys_project_is_checked_against_the_types_of_the_wheel(install: Callable[[str], Installation]) -> None:
    """`mypy --strict` finds the one mistake in the project."""
    shop = install("worker")
    (shop.project / "orders.py").write_text(_TYPED, encoding="utf-8")

    mypy = (PROJECT / ".venv" / "bin" / "mypy", "--strict", "--python-executable", shop.environment / "bin" / "python")
    ended = run(*mypy, "orders.py", cwd=shop.project)

    found, _ = ended.stdout.splitlines()
    assert found.startswith("orders.py:15: error: Argument 2 to"), ended
    assert found.endswith('has incompatible type "str"; expected "Event"  [arg-type]')


@pytest.mark.slow  # an environment of its own
def test_recorder_leaves_a_journal(install: Callable[[str], Installation], endpoint: fake_aws.Endpoint) -> None:
    recorder = install("recorder")

    recorder.run_to_end("record", "tuesday", "--", "python", "-c", _TRAFFIC, **_path(recorder), ENDPOINT=endpoint.url)

    counted = recorder.python(
        "from pathlib import Path; from sluice.recorder.journal import events_of, read_journal\n"
        "(journal,) = Path('tuesday').glob('*.arrows')\n"
        "print([event.kind for event in events_of(read_journal(journal))].count('published'))"
    )
    assert counted.stdout == "5\n"
    require_all_modules(recorder, EXTRAS["recorder"])


@pytest.mark.slow  # numba compiles anew in an environment of its own
def test_checker_judges_a_recording(install: Callable[[str], Installation], endpoint: fake_aws.Endpoint) -> None:
    """The recording is VALID. The environment has no Spark, no Java and no boto3; another environment recorded it."""
    recorder, checker = install("recorder"), install("checker")
    recorder.run_to_end("record", "tuesday", "--", "python", "-c", _TRAFFIC, **_path(recorder), ENDPOINT=endpoint.url)

    ended = checker.sluice("check", "tuesday", "--queue", "sluice-local-billing.fifo=60")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "VALID" in ended.stdout
    require_all_modules(checker, EXTRAS["checker"])


def test_the_wheel_has_the_three_packages_and_nothing_that_tests_sluice_itself(wheel: Path) -> None:
    """Tests, mutants, benchmarks and emulators stay in the checkout."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    folders = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert folders == {"contract_tests", "sluice", "spark_load"}
    assert [name for name in names if "mutant" in name] == []


@pytest.mark.slow  # they run from somebody's own pytest, too
def test_contracts_hold_for_the_simulator(install: Callable[[str], Installation]) -> None:
    """The core promises pass without a declaration, and under no pytest settings of the folder's own.

    LocalStack, the emulators and the mutants, which only a checkout has, are refused in one line.
    """
    contracts = install("contracts")
    (contracts.project / "environments.py").unlink()
    (contracts.project / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n", encoding="utf-8")

    kept = contracts.run_to_end("contracts", "--target", "simulator", "-m", "core").stdout
    no_target, emulators = (contracts.sluice(command) for command in ("contracts", "conformance"))
    mutants = contracts.sluice("contracts", "--target", "simulator", "--mutants")
    help_text = contracts.run_to_end("conformance", "--help").stdout

    assert " passed" in kept
    assert "failed" not in kept
    assert "promises need a deployed environment and were deselected; none is declared here" in kept
    assert [path.name for path in contracts.project.iterdir()] == ["pytest.ini"]
    (refusal,) = filter(None, no_target.stderr.splitlines())
    assert "give --target simulator, or --endpoint-url" in refusal
    assert no_target.returncode > 1
    (refusal,) = emulators.stderr.splitlines()
    assert "needs a checkout of Sluice" in refusal
    assert emulators.returncode == 3
    (refusal,) = filter(None, mutants.stderr.splitlines())
    assert "run it in a checkout of Sluice" in refusal
    assert mutants.returncode == 3
    assert "Needs a checkout of Sluice" in help_text
    require_all_modules(contracts, EXTRAS["contracts"])


_OWN_PYTEST = """
import json, pathlib, pytest
suite = ["--pyargs", "contract_tests.groups", "--target", "simulator", "-m", "core", "-q", "-p", "no:cacheprovider"]
assert pytest.main([*suite, "--results", "results.json"]) == 0
found = json.loads(pathlib.Path("results.json").read_text())
found["promises"]["GRP-01"]["status"] = "deviates"
pathlib.Path("other.json").write_text(json.dumps(found))
assert pytest.main([*suite, "--expect", "results.json"]) == 0
assert pytest.main([*suite, "--expect", "other.json"]) == 1
assert pytest.main([*suite, "--expect", "no.json"]) == 4
"""


@pytest.mark.slow  # an environment of its own
def test_contracts_run_from_somebodys_own_pytest(install: Callable[[str], Installation]) -> None:
    """The suite is the wheel's, and takes its options. Against a baseline only changed promises fail."""
    printed = install("contracts").python(_OWN_PYTEST)

    assert "GRP-01 holds; expected was: deviates" in printed.stdout
    assert "cannot read no.json" in printed.stderr


@pytest.mark.slow  # half a minute
def test_cdk_synthesizes_a_fan_out_in_somebodys_own_app(install: Callable[[str], Installation]) -> None:
    cdk = install("cdk")

    cdk.python(_APP)

    template = json.loads((cdk.project / "cdk.out" / "Shop.template.json").read_text(encoding="utf-8"))
    types = [resource["Type"] for resource in template["Resources"].values()]
    assert types.count("AWS::SNS::Topic") == 1
    assert types.count("AWS::SQS::Queue") == 3
    assert types.count("AWS::SNS::Subscription") == 1
    require_all_modules(cdk, EXTRAS["cdk"])


@pytest.mark.slow  # an environment of its own
def test_testing_gives_pytest_the_fixtures(install: Callable[[str], Installation]) -> None:
    """The wheel's entry point registers them: the test file names no plug-in."""
    testing = install("testing")
    (testing.project / "test_shop.py").write_text(_TEST, encoding="utf-8")

    ended = run_to_end(testing.environment / "bin" / "pytest", "-q", "-W", "error", cwd=testing.project)

    assert "1 passed" in ended.stdout
    require_all_modules(testing, EXTRAS["testing"])


@pytest.mark.slow  # an environment with Spark
def test_load_plans_a_profile_of_the_projects_environment(install: Callable[[str], Installation]) -> None:
    """The project has one queue. Spark is not started, so Java is not needed."""
    load = install("load")

    planned = load.run_to_end("load", "plan", "smoke", JAVA_HOME="/nowhere")

    assert planned.stdout.startswith("smoke on local (localstack), 1 queues")
    require_all_modules(load, EXTRAS["load"])


@pytest.mark.slow  # numba compiles anew in an environment of its own
def test_rehearse_tries_somebody_elses_template_on_a_profile(install: Callable[[str], Installation]) -> None:
    """The environment has no Spark, Java, CDK or client of AWS.

    The template's cooldown is too short and nothing protects its tasks, so the command exits with 1.
    """
    rehearse = install("rehearse")
    template = PROJECT / "tests/support/templates/scaling/visible_steps.yaml"
    (rehearse.project / "template.yaml").write_text(template.read_text(encoding="utf-8"), encoding="utf-8")

    work = ("--lanes", "1", "--handler-seconds", "0.1", "--latency", "600")
    ended = rehearse.sluice(
        "rehearse", "--template", "template.yaml", *work, "--profile", "tiny", "--json", JAVA_HOME="/nowhere"
    )

    assert ended.returncode == 1
    assert ended.stderr == ""
    (document,) = json.loads(ended.stdout)
    assert [mistake["name"] for mistake in document["mistakes"]] == [
        "cooldown-too-short",
        "scale-in-without-protection",
    ]
    assert not document["is_missed"]
    require_all_modules(rehearse, EXTRAS["rehearse"])


_VISIT = """
import http.cookiejar, re, subprocess, sys, urllib.request
with subprocess.Popen(["sluice", "ui", "--dsn", "sqlite:///shop.db"], stderr=subprocess.PIPE, text=True) as console:
    address = re.search("http://[^ ]+", console.stderr.readline())[0].strip()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    browser.open(address).read()
    print(b"no database" in browser.open(address.partition("?")[0]).read())
    console.terminate()
"""


@pytest.mark.slow  # an environment of its own
def test_ui_shows_an_environment(install: Callable[[str], Installation]) -> None:
    """With templates, styles and charts of the wheel; the terminal says what cannot be read."""
    ui = install("ui")
    ui.run_to_end("schema", "apply", "--dsn", "sqlite:///shop.db")

    visited = ui.python(_VISIT, **_path(ui), AWS_ENDPOINT_URL="http://127.0.0.1:9")

    assert visited.stdout == "False\n"
    require_all_modules(ui, EXTRAS["ui"])


def _path(installed: Installation) -> dict[str, str]:
    """Return the path on which `python` is the environment's, as it is for whoever activated it."""
    return {"PATH": f"{installed.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
