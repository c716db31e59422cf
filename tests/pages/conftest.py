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


@pytest.fixture
def console_messages() -> list[str]:
    """Return a list that takes what the page complains of and whatever it asks for."""
    return []


@pytest.fixture
def page(browser: Any, console_messages: list[str]) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(60_000)  # the demo runs beside
    page.on("console", lambda message: console_messages.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: console_messages.append(f"error: {error}"))
    page.on("request", lambda request: console_messages.append(f"request: {request.url}"))
    yield page
    context.close()
