"""The Spark side of the judge: journals become Parquet, and its engine runs in tasks. The judge is `sluice.judge`."""
