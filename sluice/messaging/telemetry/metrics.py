"""Metrics, behind one small protocol; off unless asked for. Any number of sinks get the same measurements.

On ECS a metric is a line of the log: CloudWatch Logs makes metrics of lines in its embedded metric format, whoever
sends them. The `awslogs` driver is enough: no agent, no header, and neither a right nor an endpoint more for the task.
AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Generation_PutLogEvents.html
(the header "is not required"), https://github.com/awslabs/aws-embedded-metrics-python/issues/73 (read 2026-11-21).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol, TextIO

import structlog

from sluice.clock import Clock
from sluice.terminal.printable import printable

_log = structlog.get_logger()


class Metrics(Protocol):
    """Takes measurements."""

    def put(self, values: Mapping[str, float]) -> None:
        """Take what was measured at one moment: name to value. Names and units are `sluice.metrics`'."""


class NoMetrics:
    """Measures nothing."""

    def put(self, values: Mapping[str, float]) -> None:
        """Do nothing."""


class EveryMetrics:
    """Gives each measurement to several sinks. One that fails costs neither the others' nor the caller's.

    Args:
        sinks: in the order they are given it.
    """

    def __init__(self, sinks: Sequence[Metrics]) -> None:
        self._sinks = tuple(sinks)

    def put(self, values: Mapping[str, float]) -> None:
        """Give it to each."""
        for sink in self._sinks:
            try:
                sink.put(values)
            except Exception as error:  # a closed pipe, an exporter that is nobody's here
                _log.warning("a measurement was lost", sink=type(sink).__name__, error=printable(error))


class EmbeddedMetrics:
    """Writes each measurement as a line of CloudWatch's embedded metric format.

    Args:
        stream: the log.
        clock: tells when it was measured.
        namespace: of the metrics.
        dimensions: what they are of.
        units: name to CloudWatch's unit.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Clock,
        namespace: str,
        dimensions: Mapping[str, str],
        units: Mapping[str, str],
    ) -> None:
        self._stream, self._clock = stream, clock
        self._namespace, self._dimensions, self._units = namespace, dict(dimensions), dict(units)

    def put(self, values: Mapping[str, float]) -> None:
        """Write a line."""
        directive = {
            "Namespace": self._namespace,
            "Dimensions": [list(self._dimensions)],
            "Metrics": [{"Name": name, "Unit": self._units[name]} for name in values],
        }
        said = {"_aws": {"Timestamp": self._clock.now_us() // 1_000, "CloudWatchMetrics": [directive]}}
        self._stream.write(json.dumps({**said, **self._dimensions, **values}) + "\n")
        self._stream.flush()
