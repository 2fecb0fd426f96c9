"""`make demo`, with less of everything."""

import importlib.util
from pathlib import Path

import pytest
from PIL import Image

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.more
def test_the_demo_shows_what_the_map_gains(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(DEMO.parent)
    place = importlib.util.spec_from_file_location("demo", DEMO)
    demo = importlib.util.module_from_spec(place)
    place.loader.exec_module(demo)
    monkeypatch.setattr(demo, "UPDATES", 400)
    monkeypatch.setattr(demo, "EPISODES", 100)
    demo.main()
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= 25
    scores = {
        line.split()[1]: float(line.split()[-4])
        for line in printed.splitlines()
        if "│ merlin" in line
    }
    assert scores["merlin-map"] > scores["merlin"] + 0.1
    for name in ("corner.png", "vector_field.png"):
        with Image.open(tmp_path / "runs" / "demo" / name) as picture:
            assert picture.width > 800
    film = tmp_path / "runs" / "demo" / "corner.gif"
    assert film.stat().st_size < 300_000
    with Image.open(film) as picture:
        assert picture.n_frames >= 15  # Pillow joins frames that are the same
    assert (tmp_path / "runs" / "demo" / "play.html").stat().st_size > 100_000
