"""A pure state machine of SQS FIFO and SNS FIFO: it takes parameters and an instant, and returns an answer or refusal.

Standard library only, no clock, no network, no threads. Ids in brackets such as [GRP-10] name promises, which
`docs/promises.md` lists with their evidence; a rule without an id is documented by AWS and has no promise. A comment
such as "text not recorded" says that the rule is documented, but AWS's exact error text is not known.
"""

from sluice.simulator.model.account import Account
from sluice.simulator.model.refusal import AwsRefusal

__all__ = ["Account", "AwsRefusal"]
