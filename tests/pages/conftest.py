"""A real Chromium without a window, driven over its debugging protocol."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from tests.support.project import PROJECT


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Yield the Chromium of this machine; without one the tests fail with how to get it."""
    found = subprocess.run(["bash", "scripts/chromium.sh"], cwd=PROJECT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.fail(found.stderr.strip(), pytrace=False)
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has no sandbox for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found.stdout.strip(), args=as_root)
        yield browser
        browser.close()
