"""A pure state machine of SQS FIFO and SNS FIFO: parameters and an instant in, an answer or a refusal out.

Standard library only, no clock, no network, no threads. Ids in brackets such as [GRP-10] are promise and fact ids; a
rule without one is documented by AWS and not worth one here. Where sources disagree or nobody recorded AWS, the rule
says so.
"""

from sluice.simulator.model.account import Account
from sluice.simulator.model.refusal import AwsRefusal

__all__ = ["Account", "AwsRefusal"]
