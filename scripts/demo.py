"""`make demo`, inside `python -m emulator run`: deployment, contracts, orders, scaling, load test, and one result.

The parts wait at different times, so each begins as soon as the parts it needs are over. What fails does not skip what
follows, except that nothing follows a failed deployment; all of it counts. Exit code: that of the load test, 1 when
only others failed, 2 when the deployment did.
"""

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from emulator.processes import SupervisedProcess
from sluice.clock import Clock, SystemClock
from sluice.judge.checker.verdict import EXIT_CROSSED
from sluice.judge.report import read_verdict
from sluice.judge.report.summary import harm_sentence

_RUNS = Path("runs")
_GRACE_SECONDS = 10
_TICK_SECONDS = 0.2
_TAIL_LINES = 20
_DEPLOYMENT, _LOAD = "deployment", "load test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One command of the demo.

    Args:
        does: what it shows, for the user.
        command: program and arguments.
        log: file its output goes to; None means the terminal, which one part at a time may have.
        after: names of the parts that have to be over before it begins.
        variables: added to the environment.
        shown: regular expression of what to show of its log when it ended well.
        words: of the result, by exit code.
    """

    name: str
    does: str
    command: Sequence[str]
    log: Path | None = None
    after: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    shown: str = ".*"
    words: Mapping[int, str] = field(default_factory=lambda: {0: "done"})

    def highlight(self) -> str:
        """Return the last part of a line of the log that is to be shown; empty where there is none."""
        found = [] if self.log is None else re.findall(self.shown, self.log.read_text(errors="replace"))
        return next((text.strip() for text in reversed(found) if text.strip()), "")

    def verdict(self, code: int | None) -> str:
        """Return the words of the result; None means that it has not ended."""
        return "not ended" if code is None else self.words.get(code, f"BROKEN (exit code {code})")


class Demo:
    """The demo's parts, each run as soon as the parts before it are over, with their exit codes."""

    def __init__(
        self, parts: Sequence[Part], *, show: Callable[[str], None] = print, clock: Clock | None = None
    ) -> None:
        self._parts, self._show = parts, show
        self._clock = SystemClock() if clock is None else clock
        self._begun_at = self._clock.monotonic()
        self._running: dict[str, SupervisedProcess] = {}
        self._held: deque[str] = deque()
        self.codes: dict[str, int] = {}

    def run(self) -> None:
        """Run every part when those it comes after are over, and note the exit codes; end at a failed deployment."""
        with ExitStack() as stack:
            while len(self.codes) < len(self._parts) and not self.codes.get(_DEPLOYMENT):
                for part in self._parts:
                    if part.name in self._running:
                        self._look_at(part)
                    elif part.name not in self.codes and all(name in self.codes for name in part.after):
                        self._begin(part, stack)
                self._clock.sleep(_TICK_SECONDS)
        while self._held:
            self._show(self._held.popleft())

    def _begin(self, part: Part, stack: ExitStack) -> None:
        """Say what a part shows, and start its process."""
        self._tell(f"{part.name}: {part.does}{'' if part.log is None else f' (log: {part.log})'}")
        output = None if part.log is None else stack.enter_context(part.log.open("wb"))
        self._running[part.name] = stack.enter_context(
            SupervisedProcess(
                part.command, environment={**os.environ, **part.variables}, grace_seconds=_GRACE_SECONDS, output=output
            )
        )

    def _look_at(self, part: Part) -> None:
        """If a part's process has ended, note its exit code and show its result.

        If the part failed, show the end of its log, too.
        """
        process = self._running[part.name]
        if process.is_running:
            return
        del self._running[part.name]
        code = self.codes[part.name] = process.wait()
        if code and part.log is not None:
            for line in part.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]:
                self._tell(f"    {line}", is_stamped=False)
        self._tell(
            f"{part.name}: {part.verdict(code)}{f'; {shown}' if not code and (shown := part.highlight()) else ''}"
        )

    def _tell(self, line: str, *, is_stamped: bool = True) -> None:
        """Show a line; while a part has the terminal, keep it until that has ended."""
        stamp = f"[{self._clock.monotonic() - self._begun_at:4.0f} s] " if is_stamped else ""
        self._held.append(stamp + line)
        if any(part.log is None and part.name in self._running for part in self._parts):
            return
        while self._held:
            self._show(self._held.popleft())


def parts(profile: str) -> list[Part]:
    """Return what the demo runs: what needs the queues of `local` one after the other, and the rest beside it."""
    pytest = ("pytest", "--quiet", "contract_tests")
    return [
        Part(
            name=_DEPLOYMENT,
            does="topic, queues, DLQs, network, services, alarms, with cdk deploy",
            command=("scripts/deploy-local.sh",),
            log=_RUNS / "deploy.log",
            shown="Total time.*",
        ),
        Part(
            name="contracts",
            does="the core of what SQS and SNS promise ('make contract': everything)",
            # Nothing waits for it: where two want a processor, the other goes first.
            command=("nice", *pytest, "-n", "8", "-m", "core and not deployment and not slow"),
            log=_RUNS / "contracts.log",
            after=(_DEPLOYMENT,),
            words={0: "kept"},
        ),
        Part(
            name="contracts of the deployment",
            does="all of what is deployed",
            command=(*pytest, "-n", "2", "-m", "deployment and not slow"),
            log=_RUNS / "deployed-contracts.log",
            after=(_DEPLOYMENT,),
            words={0: "kept"},
        ),
        Part(
            name="scaling",
            does="a burst wakes real workers from none, the deployed policy starts and stops them",
            command=("sh", "-c", "scripts/deploy-local.sh local/Messaging && sluice load run scale --env local"),
            log=_RUNS / "scaling.log",
            after=(_DEPLOYMENT,),
            variables={"SLUICE_DECLARATION": "examples/scaling/environments.py", "COLUMNS": "300"},
            shown="billing: tasks.*",
            words={0: "valid through scale-out and scale-in"},
        ),
        Part(
            name="orders",
            does="200 transactions, outbox, relay, topic, queues, three services with an inbox each",
            command=("scripts/orders.sh",),
            log=_RUNS / "orders.log",
            after=("contracts of the deployment",),
            words={0: "once and in order"},
        ),
        Part(
            name=_LOAD,
            does=f"profile {profile}",
            command=("sluice", "load", "run", "--env", "local", "--", profile),
            after=("orders",),
            words={0: "valid", 1: "INVALID", 2: "unknown", 99: "valid, with a threshold crossed"},
        ),
    ]


def faults_done(run: Path) -> str:
    """Return what was done to a run on purpose, behind a semicolon; an empty text if nothing was."""
    done = harm_sentence(read_verdict(run))
    return "" if done is None else f"; {done}"


def main(profile: str) -> int:
    """Run the demo and show its result; return the exit code."""
    _RUNS.mkdir(exist_ok=True)
    everything = parts(profile)
    demo = Demo(everything)
    demo.run()
    runs = sorted(_RUNS.glob(f"*-local-{Path(profile).stem}"))
    print("\n=== result")
    for part in everything:
        faults = faults_done(runs[-1]) if part.name == _LOAD and demo.codes.get(_LOAD) in (0, EXIT_CROSSED) else ""
        print(f"{part.name + ':':28} {part.verdict(demo.codes.get(part.name))}{faults}")
    print(f"artefacts: {runs[-1] if runs else 'none'} (report.html, verdict.json, summary.md, history/, journals/)")
    if demo.codes[_DEPLOYMENT]:
        return 2
    return demo.codes[_LOAD] or int(any(demo.codes.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
