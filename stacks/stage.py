"""One environment as a CDK stage: the library's as it is, and the place for stacks of your own beside them."""

from sluice.constructs.stage import EnvironmentStage

__all__ = ["EnvironmentStage"]
