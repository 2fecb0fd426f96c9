"""Progress: what a log says of work that is fast and of work that is slow."""

import re
import sys
import time

import pytest

from merlin.io.progress import Progress


@pytest.mark.parametrize(
    ("unit", "done", "seconds", "rate"),
    [
        ("updates", 5000, 10.0, "500 updates/s"),
        ("updates", 32, 10.0, "3.2 updates/s"),
        ("cells", 3, 9.6, "3.2 s/cell"),
        ("trajectories", 1, 125.0, "125 s/trajectory"),
    ],
)
def test_the_rate_is_useful_at_any_speed(monkeypatch, capsys, unit, done, seconds, rate):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress("work", 10_000, unit) as bar:
        bar.update(1, force=True)  # no rate yet: it includes compilation
        now[0] += seconds
        bar.update(1 + done, "well", force=True)
    lines = capsys.readouterr().err.splitlines()
    left = (9999 - done) * seconds / done
    assert lines[0] == f"work: 1/10000 {unit}  "
    start, time_left, note = re.fullmatch(r"(.*)  (.* left)  (.*)", lines[1]).groups()
    assert (start, note) == (f"work: {1 + done}/10000 {unit}  {rate}", "well")
    hours, minutes, rest = re.fullmatch(
        r"(?:(\d+) h )?(?:(\d+) min)?(?:(\d+) s)? left", time_left
    ).groups(default=0)
    assert int(hours) * 3600 + int(minutes) * 60 + int(rest) == pytest.approx(left, rel=0.02)


def test_compilation_is_announced_and_does_not_count(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress("seed 0", 200, "updates") as bar:
        bar.begin("compiling", 50)
        assert capsys.readouterr().err == "seed 0: 50/200 updates  compiling\n"
        now[0] += 60
        bar.update(51, force=True)
        now[0] += 10
        bar.update(200)
    assert capsys.readouterr().err.splitlines()[-1] == "seed 0: 200/200 updates  15 updates/s"
    with Progress("seed 0", 200, "updates", quiet=True) as bar:
        bar.begin("compiling", 50)
    assert capsys.readouterr().err == ""


def test_evaluations_are_a_table_on_a_terminal_and_lines_in_a_log(monkeypatch, capsys):
    scores = {"return": 21.339, "success": 0.75}
    with Progress("seed 0", 4000, "updates") as bar:
        bar.measured(2000, scores)
    assert "seed 0: 2000/4000 updates  return 21.34  success 0.75" in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    with Progress("seed 0", 4000, "updates") as bar:
        bar.measured(2000, scores)
        bar.measured(4000, scores)
    printed = capsys.readouterr().err
    plain = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", printed)
    table = [line.split() for line in plain.splitlines()]
    at = table.index(["updates", "return", "success"])
    assert ["2000", "21.34", "0.75"] in table[at:]
    assert ["4000", "21.34", "0.75"] in table[at:]
    assert plain.count("success") == 1
