"""Metrics as lines of the log."""

import io
import json

from messaging.metrics import EmbeddedMetrics
from sluice import metrics
from sluice.clock import VirtualClock


def test_a_measurement_is_one_line_in_cloudwatchs_embedded_metric_format() -> None:
    """As the specification has it: milliseconds, one set of dimensions, and all values and dimensions at the root."""
    stream = io.StringIO()
    written = EmbeddedMetrics(
        stream,
        clock=VirtualClock(1_767_225_600_123_456),
        namespace="Sluice",
        dimensions={"Topic": "events.fifo"},
        units=metrics.UNITS,
    )

    written.put({metrics.OUTBOX_LAG: 1.5, metrics.OUTBOX_PENDING: 2})
    written.put({metrics.OUTBOX_PUBLISHED: 7})

    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first == {
        "_aws": {
            "Timestamp": 1_767_225_600_123,
            "CloudWatchMetrics": [
                {
                    "Namespace": "Sluice",
                    "Dimensions": [["Topic"]],
                    "Metrics": [
                        {"Name": "OutboxLag", "Unit": "Seconds"},
                        {"Name": "OutboxPending", "Unit": "Count"},
                    ],
                }
            ],
        },
        "Topic": "events.fifo",
        "OutboxLag": 1.5,
        "OutboxPending": 2,
    }
    assert second["_aws"]["CloudWatchMetrics"][0]["Metrics"] == [{"Name": "OutboxPublished", "Unit": "Count"}]
    assert second["OutboxPublished"] == 7
