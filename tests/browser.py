"""The machine's own Chromium, driven through its own chromedriver. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

LOAD_SECONDS = 60


def find_browser() -> tuple[str, str]:
    """Paths of the browser and its driver. Raises FileNotFoundError saying what is missing.

    `CHROMIUM` and `CHROMEDRIVER` name others than those of the system.
    """
    return _found("CHROMIUM", "chromium", "chromium-browser", "google-chrome"), _found("CHROMEDRIVER", "chromedriver")


def _found(setting: str, *names: str) -> str:
    named = os.environ.get(setting)
    paths = [named] if named else [shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/bin") for name in names]
    for path in paths:
        if path and Path(path).exists():
            return path
    raise FileNotFoundError(f"{named or names[0]} is not on this machine ({setting} can name another)")


@contextmanager
def opened(*, javascript: bool = True, width: int = 1280, height: int = 1600, scheme: str = "dark") -> Iterator[Chrome]:
    """A browser without a window. `scheme`: which colours its reader prefers, dark or light."""
    program, driver = find_browser()
    options = ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--no-sandbox",  # tests may run as root in a container
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--window-size={width},{height}",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
    ):
        options.add_argument(argument)
    if not javascript:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=Service(executable_path=driver))
    try:
        browser.set_page_load_timeout(LOAD_SECONDS)
        yield browser
    finally:
        browser.quit()
