"""Write hashes.txt: constraints.txt with the SHA-256 of every file that pip may install here.

    python tools/hashes.py

Asks the package index that pip is configured for, and records checksums but no addresses. Files for
Linux on x86-64 and ARM with the supported versions of Python are listed; a release without a
wheel is listed by its source archive. Run it again whenever constraints.txt changes.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r'#sha256=([0-9a-f]{64})"[^>]*>\s*([^<\s]+)\s*</a>')
PYTHONS = re.compile(r"-(?:py2\.py3|py3|cp3(?:1[123])?|cp3\d+-abi3)[-.]")
PLATFORMS = re.compile(r"-any\.whl$|manylinux\w*_(?:x86_64|aarch64)")
TITLE = "# Made by tools/hashes.py: pip install --require-hashes --no-deps -r hashes.txt\n"


def index() -> str:
    """The address of pip's package index."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode == 0:
        return told.stdout.strip().rstrip("/")
    from pip._internal.models.index import PyPI

    return os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")


def hashes(address: str, name: str, version: str) -> list[str]:
    """The checksums of the files of one release."""
    normal = re.sub(r"[-_.]+", "-", name).lower()
    with urllib.request.urlopen(f"{address}/{normal}/", timeout=60) as answer:
        links = LINK.findall(answer.read().decode())
    stem = re.compile(rf"[\w.-]+?-{re.escape(version)}(?:-|\.tar\.gz$|\.zip$)")
    own = {file: digest for digest, file in links if stem.match(file)}
    wheels = [n for n in own if PYTHONS.search(n) and PLATFORMS.search(n)]
    chosen = wheels or [n for n in own if n.endswith((".tar.gz", ".zip"))]
    if not chosen:
        raise SystemExit(f"{name} {version}: the index has no file for Linux; correct the pin.")
    return sorted(own[n] for n in chosen)


def main() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if re.match(r"[\w.-]+==", line)]
    address = index()

    def entry(pin: str) -> str:
        name, version = pin.partition(";")[0].strip().split("==")
        parts = [pin, *(f"    --hash=sha256:{one}" for one in hashes(address, name, version))]
        return " \\\n".join(parts) + "\n"

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        text = TITLE + "".join(pool.map(entry, pins))
    (ROOT / "hashes.txt").write_text(text)


if __name__ == "__main__":
    main()
