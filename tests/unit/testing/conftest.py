"""The fixtures, taken by name: a checkout whose environment was made before they existed has no entry point yet."""

from sluice.testing.plugin import simulated_aws, worker_harness

__all__ = ["simulated_aws", "worker_harness"]
