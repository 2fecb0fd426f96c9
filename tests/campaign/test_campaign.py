"""The short version of `make campaign`."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.more
@pytest.mark.parametrize("sections", [["attacks"], ["mutations", "read-only", "full disk"]])
def test_a_short_campaign_is_clean(sections):
    command = [sys.executable, str(Path(__file__).parent), "--minutes", "0.3", "--only", *sections]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert ended.stdout.splitlines()[-1].endswith(" 0 |")
