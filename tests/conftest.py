"""All tests, and all processes they start, run on the frozen declaration."""

import os

from sluice.declaration import loading
from tests.support.declaration import FILE

os.environ[loading.VARIABLE] = str(FILE)
