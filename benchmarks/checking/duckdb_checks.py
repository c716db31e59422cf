"""The core checks in DuckDB, for comparison: `duckdb_checks.py FOLDER TIMES`, in the environment of the competitors.

Lost, phantom, redelivered, reordered, held together, and incomplete fan-out; a part of what `spark_load` judges. Stands
alone: that environment has nothing of Sluice.
"""

import json
import sys
import time

import duckdb

_CHECKS = """
WITH instance AS (
    SELECT message_group_id AS g, idx, queue,
        count(*) FILTER (kind = 'published' AND outcome = 'ok') AS published,
        count(*) FILTER (kind = 'received') AS received,
        max(sns_sequence_number) AS number,
        min(responded_at_us) FILTER (kind = 'received') AS answered_us,
        min(invoked_at_us) FILTER (kind = 'deleted') AS deleted_us
    FROM read_parquet($files) WHERE message_group_id IS NOT NULL GROUP BY ALL
), message AS (
    SELECT g, idx, sum(published) AS published, count(*) FILTER (received > 0) AS queues, max(number) AS number
    FROM instance GROUP BY ALL
), compared AS (
    SELECT instance.g, received, answered_us, message.number,
        lag(message.number) OVER (PARTITION BY instance.g, queue ORDER BY answered_us, message.number) AS number_before,
        max(deleted_us) OVER (
            PARTITION BY instance.g, queue ORDER BY answered_us, message.number
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS held_until_us,
        lag(answered_us) OVER (PARTITION BY instance.g, queue ORDER BY answered_us, message.number) AS before_us
    FROM instance JOIN message USING (g, idx) WHERE received > 0
)
SELECT
    (SELECT count(*) FROM message WHERE published > 0 AND queues = 0),
    (SELECT count(*) FROM message WHERE published = 0),
    (SELECT count(*) FROM message WHERE published > 0 AND queues BETWEEN 1 AND 2),
    count(*) FILTER (received > 1),
    count(*) FILTER (number <= number_before),
    count(*) FILTER (held_until_us > answered_us AND before_us < answered_us)
FROM compared
"""


def main() -> None:
    """Print a line of JSON for each run: seconds, processor seconds and the six counts. The first run warms up."""
    files, times = f"{sys.argv[1]}/*.parquet", int(sys.argv[2])
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    connection.execute("SET memory_limit = '6GB'")
    for number in range(times):
        began, began_processor = time.perf_counter(), time.process_time()
        found = connection.execute(_CHECKS, {"files": files}).fetchone()
        took = {
            "is_warm_up": number == 0,
            "step": "duckdb",
            "seconds": time.perf_counter() - began,
            "processor_seconds": time.process_time() - began_processor,
            "found": found,
        }
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
