"""A real browser for pages. Without one their tests fail: a page that nobody saw is untested."""

import json
import shutil
import subprocess

import pytest

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
)


def start(profile):
    """Chromium without a window, keeping its profile in the given folder."""
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        pytest.fail(
            f"{' and '.join(missing)} not found: "
            "run `apt-get install chromium chromium-driver` (Debian) and test again."
        )
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = paths["chromium"]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(paths["chromedriver"], log_output=subprocess.DEVNULL)
    return webdriver.Chrome(options=options, service=service)


def open_in(browser, url, width=1280, scheme="light", motion="reduce", height=800):
    """Open a page anew in a window of the given width and colour scheme, with empty logs."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(url)
    return browser


def requests(browser):
    """What the page asked for since it was opened, data: addresses apart."""
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        message["params"]["request"]["url"]
        for message in sent
        if message["method"] == "Network.requestWillBeSent"
    ]
    return {url for url in urls if not url.startswith("data:")}
