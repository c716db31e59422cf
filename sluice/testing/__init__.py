"""Tools for tests of your own handlers: SQS and SNS simulated, and a worker that a test drives through failures.

pytest finds the fixtures `simulated_aws`, `worker_harness` and `lambda_harness` by itself (`plugin`). It loads this
file in every run, so nothing is imported here before it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.testing.harness import DeadLetter, WorkerHarness
    from sluice.testing.lambda_harness import LambdaHarness
    from sluice.testing.parts import Attempt
    from sluice.testing.simulated_aws import SimulatedAws
    from sluice.topology import Topology, deploy
else:

    def __getattr__(name: str) -> object:
        from sluice.extras import facade  # noqa: PLC0415 (costs every pytest run otherwise)
        from sluice.old_names import forward_names  # noqa: PLC0415

        modules = {
            "harness": ("DeadLetter", "WorkerHarness"),
            "lambda_harness": ("LambdaHarness",),
            "parts": ("Attempt",),
            "simulated_aws": ("SimulatedAws", "Topology", "deploy"),
        }
        if name == "Deployed":
            return forward_names(__name__, Deployed="sluice.topology:Topology")(name)
        return facade(__name__, "testing", modules)(name)


__all__ = ["Attempt", "DeadLetter", "LambdaHarness", "SimulatedAws", "Topology", "WorkerHarness", "deploy"]
