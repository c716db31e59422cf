"""Tables, producers, relays and workers of the commit before beside those of this code, some killed meanwhile."""

import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sluice.declaration import Consumer, Environment, task_settings
from sluice.messaging.bundle import write_bundle
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from tests.support.messaging.world import create_tables, envelope
from tests.support.project import PROJECT

BASE = "b8ba6c46"
"""The commit before issue 31: version 2 of the tables."""
BEFORE_BUNDLES = "c80eb3f8"
"""The last commit whose worker cannot read bundles."""
_DRIVER = PROJECT / "tests" / "support" / "messaging" / "version_driver.py"
_GROUPS = tuple("abcdefg")
_BUNDLE, _MANY = 6, 60  # events of a message, and of a commit to all groups
_TURNS, _KILLED, _KILLED_SECONDS_MAX = 40, 0.15, 2.0


@pytest.fixture(scope="module")
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the tree of a commit before; it needs the history, which a shallow clone lacks."""
    tree, commit = tmp_path_factory.mktemp("base") / "tree", request.param
    git = ("git", "-C", str(PROJECT))
    subprocess.run([*git, "worktree", "add", "--detach", "--force", str(tree), commit], check=True, capture_output=True)
    yield tree
    subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True, capture_output=True)


class _Code:
    """One version of the code, in a process that may be killed; the next call starts another."""

    def __init__(self, tree: Path, dsn: str, bundle_events_max: int = 1) -> None:
        self._tree, self._arguments = tree, (dsn, str(bundle_events_max))
        self._process: subprocess.Popen[str] | None = None

    def call(self, *command: Any) -> Any:
        """Run a command in the process with this version of the code, and return its result."""
        process = self._tell(command)
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def die(self, *command: Any, seconds: float) -> None:
        """Run a command, and be killed before, during or after it."""
        process = self._tell(command)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        self.kill()

    def _tell(self, command: Sequence[Any]) -> subprocess.Popen[str]:
        """Send a command to the process, which is started first if it does not run."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(_DRIVER), *self._arguments],
                env={**os.environ, "PYTHONPATH": str(self._tree)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._process

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@contextmanager
def _codes(base: Path, engine: Engine, bundle_events_max: int = 1) -> Iterator[tuple[_Code, _Code]]:
    """Yield the code of the base version and the code of this checkout, each in a process on the same database."""
    dsn = engine.url.render_as_string(hide_password=False)
    with ExitStack() as stack:
        codes = _Code(base, dsn), _Code(PROJECT, dsn, bundle_events_max)
        for code in codes:
            stack.callback(code.kill)
        yield codes


def _run(rng: random.Random, codes: tuple[_Code, ...], *, turns: int, events_max: int = 4) -> list[str]:
    """Let producer, relay and worker act in turn, each in the process of a version drawn at random.

    A producer or a worker may be killed during its command. After a killed worker all messages of the turn are
    delivered again to a worker drawn anew, as SQS delivers undeleted messages again. A relay is not killed: the topic
    is simulated in the relay's process, so messages that were published and not yet returned would be lost. With
    `events_max` above 4 it may die by itself, around a bundle's boundary or its answer.

    Return the bodies that died.
    """
    died = set[str]()
    deaths = (None,) if events_max == 4 else (*[None] * 6, "after_bundle", "before_publish", "after_publish")
    for _ in range(turns):
        producer, relay, worker, next_worker = (rng.choice(codes) for _ in range(4))
        groups = rng.choices(_GROUPS, k=rng.randint(1, events_max))
        if rng.random() < _KILLED:
            producer.die("commit", groups, seconds=rng.uniform(0, _KILLED_SECONDS_MAX))
        else:
            producer.call("commit", groups)
        bodies = relay.call("relay", rng.choice(deaths))
        if rng.random() < _KILLED:
            worker.die("work", bodies, seconds=rng.uniform(0, _KILLED_SECONDS_MAX))
            worker = next_worker
        worker.call("work", bodies)
        died.update(worker.call("dead_letters"))
    return sorted(died)


def _judge(engine: Engine, died: Sequence[str] = ()) -> None:
    """Every event once, each group in order, from 1 without a hole; by SQL of this test. What died may come late."""
    events = [event for body in died for event in json.loads(body)["events"]]
    late = {(event["group"], event["seq"]) for event in events}
    seen = defaultdict(list)
    with engine.connect() as connection:
        for group, seq in connection.execute(text("SELECT group_id, seq FROM effects ORDER BY id")):
            seen[group].append(seq)
        counters = dict(map(tuple, connection.execute(text("SELECT group_id, last_seq FROM sluice_outbox_group"))))
        unsent = connection.execute(text("SELECT count(*) FROM sluice_outbox WHERE status <> 'sent'")).scalar_one()

    assert {group: list(range(1, last + 1)) for group, last in counters.items()} == {
        group: sorted(seqs) for group, seqs in seen.items()
    }
    in_time = {group: [seq for seq in seqs if (group, seq) not in late] for group, seqs in seen.items()}
    assert {group: sorted(seqs) for group, seqs in in_time.items()} == in_time
    assert unsent == 0
    assert len(seen) == len(_GROUPS)


@pytest.mark.slow
@pytest.mark.parametrize("base", [BASE], indirect=True)
@pytest.mark.parametrize("seed", [1, 2])
def test_both_versions_work_on_the_tables_of_the_later_one(base: Path, postgres: Engine, seed: int) -> None:
    """Deployment: old tables and code, new tables, both codes in any order, then the new one alone; then back."""
    rng = random.Random(seed)  # noqa: S311 (chance, not a secret)
    _drop_tables(postgres)
    with _codes(base, postgres) as (old, new):
        assert old.call("apply") == [2, 2]  # the version of the outbox's and of the inbox's tables
        create_tables(postgres)  # the handler's
        _run(rng, (old,), turns=5)
        needed = tables.versioned.version
        refusal = f"are of version 2, this code needs {needed}; run `sluice schema apply outbox`"
        with pytest.raises(AssertionError, match=refusal):
            new.call("require")

        assert new.call("apply") == [*range(3, needed + 1), *range(3, inbox_tables.versioned.version + 1)]
        old.call("require")
        _run(rng, (old, new), turns=_TURNS)
        _run(rng, (new,), turns=5)
        assert old.call("apply") == []
        _run(rng, (old,), turns=5)  # rolled back
        _run(rng, (old, new), turns=5)  # and deployed again

    _judge(postgres)


@pytest.mark.slow
@pytest.mark.parametrize("base", [BASE, BEFORE_BUNDLES], indirect=True)
def test_a_task_of_an_older_image_reads_what_new_stacks_write(base: Path) -> None:
    """An image is rolled back and the stacks are not; nothing is declared that the older code does not know."""
    declared = Environment(name="dev", consumers=(Consumer(name="billing", handlers="their.billing"),))
    written = task_settings.render(task_settings.task_environment(declared, declared.consumers[0]))

    code = "import sys; from sluice.declaration import task_settings; task_settings.parse(sys.argv[1])"
    read = subprocess.run(
        [sys.executable, "-c", code, written],
        env={**os.environ, "PYTHONPATH": str(base)},
        cwd=base,
        capture_output=True,
        text=True,
        check=False,
    )

    assert read.returncode == 0, read.stderr


@pytest.mark.slow
@pytest.mark.parametrize("base", [BEFORE_BUNDLES], indirect=True)
def test_bundles_that_an_older_worker_rejects_are_handled_after_a_redrive(base: Path, postgres: Engine) -> None:
    """Code is rolled back while bundles are in the queue: they die as a whole, and newer code handles each event once.

    Under `Poison.SKIP` group a goes on meanwhile without its events, which come late; group b keeps its order.
    """

    def bundle(group: str, *numbers: int) -> list[str]:
        return [group, write_bundle([envelope(group, number, id=f"{group}-{number}").body for number in numbers])]

    _drop_tables(postgres)
    with _codes(base, postgres) as (old, new):
        new.call("apply")
        create_tables(postgres)
        new.call("work", [bundle("a", 1, 2), bundle("b", 1, 2)])

        stranded = [bundle("a", 3, 4, 5), bundle("b", 3, 4)]
        old.call("work", [*stranded, bundle("a", 6)])
        dead = old.call("dead_letters")
        for _ in range(2):  # the second redrive repeats nothing
            new.call("work", [*stranded, bundle("b", 5)])

        assert sorted(dead) == sorted(body for _, body in stranded)
        assert new.call("dead_letters") == []
    with postgres.connect() as connection:
        effects = connection.execute(text("SELECT group_id, seq FROM effects ORDER BY id")).all()
    assert [seq for group, seq in effects if group == "a"] == [1, 2, 6, 3, 4, 5]
    assert [seq for group, seq in effects if group == "b"] == [1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("base", [BEFORE_BUNDLES], indirect=True)
@pytest.mark.parametrize("seed", [1, 2])
def test_bundles_outlive_a_rollback_under_kills(base: Path, postgres: Engine, seed: int) -> None:
    """Bundles are switched on; then both codes act in any order, then older code alone, and newer code again.

    Relays of both die around a bundle's boundary and its answer, and an older one sends each of its events alone. What
    an older worker has rejected as a whole is redriven once the newer code is alone.
    """
    rng = random.Random(seed)  # noqa: S311 (chance, not a secret)
    _drop_tables(postgres)
    with _codes(base, postgres, _BUNDLE) as (old, new):
        new.call("apply")
        create_tables(postgres)
        new.call("switch_bundles", _BUNDLE)
        died = _run(rng, (new,), turns=5, events_max=_MANY)
        assert died == []
        died += _run(rng, (old, new), turns=_TURNS // 2, events_max=_MANY)
        died += _run(rng, (old,), turns=5, events_max=_MANY)  # rolled back
        _run(rng, (new,), turns=5, events_max=_MANY)  # and deployed again
        new.call("work", new.call("relay"))
        new.call("work", [[json.loads(body)["events"][0]["group"], body] for body in died])

    assert len(died) >= 10
    _judge(postgres, died)


def _drop_tables(engine: Engine) -> None:
    """Drop every table of the schema."""
    with engine.begin() as connection:
        for name in connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        ).all():
            connection.execute(text(f"DROP TABLE {name[0]} CASCADE"))
