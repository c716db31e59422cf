"""What holds for the templates of every environment whatever it declares: `problems` says where one does not.

The checks look at templates only, so that a template made wrong on purpose shows whether they can fail.
"""

from collections.abc import Mapping

from sluice.declaration import Environment
from tests.unit.stacks.invariants import alarms, grants, queues, scaling, services
from tests.unit.stacks.synthesis import Template, resources


def problems(templates: Mapping[str, Template], environment: Environment) -> list[str]:
    """Return one sentence for everything that is wrong in an environment's templates, given by part."""
    found = resources(templates)
    checks = (*queues.CHECKS, *grants.CHECKS, *services.CHECKS, *scaling.CHECKS, *alarms.CHECKS)
    return [
        *(problem for check in checks for problem in check(found, environment)),
        *queues.exports_of_consumers(templates),
    ]
