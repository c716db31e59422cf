"""What an operation of SQS or SNS is given and answers, in AWS's own shape."""

from collections.abc import Callable, Mapping
from typing import Any

type Params = Mapping[str, Any]
type Answer = dict[str, Any]
type Operation = Callable[[Params, float], Answer]
"""Takes parameters and the instant; raises `Refusal` where AWS would refuse."""
