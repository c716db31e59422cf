"""The checker on a large history: `python -m benchmarks.checking.spark_checks`.

Arguments: the folder of a small history to warm up on, the folder to measure, the steps, the number of rounds.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.checking.histories import BUCKETED, EXPECTATION, PLAIN, WORKERS
from benchmarks.processes import processor_seconds
from sluice.clock import SystemClock
from sluice.judge.engine import JudgeEngine
from sluice.judge.judge import RunFacts, judge
from spark_load.judge.parts import HistoryOnSpark
from spark_load.run.driver import TASK_MODULES
from spark_load.runtime import spark_session

_CORES = 2
_clock = SystemClock()


def main() -> None:
    """Print a line of JSON for each round and step: its name, seconds, processor seconds and the verdict."""
    warm_up, measured, *names = sys.argv[1:-1]
    times = int(sys.argv[-1])
    folders = {"judge": BUCKETED, "judge exchanged": PLAIN}
    with spark_session.running(_CORES, preload=TASK_MODULES) as spark:
        for number in range(-1, times):
            for name in names:
                began, began_processor = _clock.monotonic(), processor_seconds(os.getpid())
                found = _judge(spark, Path(warm_up if number < 0 else measured) / folders[name])
                took = {
                    "is_warm_up": number < 0,
                    "step": name,
                    "seconds": _clock.monotonic() - began,
                    "processor_seconds": processor_seconds(os.getpid()) - began_processor,
                    "found": found,
                }
                print(json.dumps(took), flush=True)


def _judge(spark: SparkSession, folder: Path) -> dict[str, object]:
    verdict = judge(
        JudgeEngine(HistoryOnSpark(spark, folder)),
        RunFacts(expectation=EXPECTATION, target="endpoint", recorders=dict.fromkeys(WORKERS)),
    )
    return {
        "status": verdict.status.value,
        "events": verdict.measures["events"],
        "suspect_groups": verdict.measures["suspect_groups"],
        "violations": {prop.anomaly: prop.violation_count for prop in verdict.properties if prop.violation_count},
    }


if __name__ == "__main__":
    main()
