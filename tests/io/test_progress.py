"""Progress: what a log says of work that is fast and of work that is slow."""

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
    assert lines == [f"work: 1/10000 {unit}  ", f"work: {1 + done}/10000 {unit}  {rate}  well"]
