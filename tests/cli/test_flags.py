"""Messages name arguments of functions; on the command line they name flags."""

from pathlib import Path

import pytest

from merlin.cli.collect import Collect
from merlin.cli.flags import with_flags
from merlin.cli.train import Train


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("seeds: 0 is below 1.", "--seeds: 0 is below 1."),
        ("held_out: 2 is too much.", "--held-out: 2 is too much."),
        ("method: no method is called 'x'.", "--algo: no method is called 'x'."),
        ("image_size 4: is too small.", "--image-size 4: is too small."),  # in a group of options
        ("data: there is none.", "data: there is none."),
        ("task X: is unknown.", "task X: is unknown."),
        ("a: use another `out` or `resume=True`.", "a: use another --out or --resume."),
        ("a: give `max_steps=100`.", "a: give --max-steps 100."),
        ("a: pass `task='m:own/E-v0'`.", "a: pass --task m:own/E-v0."),
        ("a: pass `task='m:E-v0?x=1&y=2'`.", "a: pass --task 'm:E-v0?x=1&y=2'."),
        ("a: `merlin train --out b` makes it.", "a: `merlin train --out b` makes it."),
        ("a: `overwrite=True` is needed.", "a: `overwrite=True` is needed."),  # train has none
    ],
)
def test_arguments_become_flags(message, shown):
    assert with_flags(message, Train(data="x", out=Path("y"))) == shown


def test_what_has_no_flag_keeps_its_name():
    said = "a: set `task='X'` and `overwrite=True`."
    assert with_flags(said, Collect("PointReach", out=Path("x"))) == (
        "a: set `task='X'` and --overwrite."
    )
    assert with_flags(said, None) == said  # the command line could not be read
