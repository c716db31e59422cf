"""Each file of the unit run is one worker's, as each group is: what a file makes once is made once."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling, Scheduling


class _ByFile(LoadGroupScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Take the place of `--dist loadgroup`, whose time also grows with the square of the number of groups."""
    return _ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None
