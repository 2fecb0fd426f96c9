"""Rows drawn so that rare ones come as often as common ones, and the encoder that sees them so."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from merlin.augment import encoder
from merlin.augment.balanced_sampling import BINS, balanced_sampler
from merlin.augment.encoder import train_encoder
from merlin.data.images import Images

DRAWS = 20_000


@pytest.fixture
def values(rng):
    return np.stack([rng.exponential(1.0, 5000), rng.standard_normal(5000)], 1).astype(np.float32)


def test_every_bin_that_holds_rows_comes_as_often_as_any_other(values, rng):
    found = balanced_sampler(values[:, :1])
    rows = found.draw(rng.random((DRAWS, 2), np.float32))
    low, high = values[:, 0].min(), values[:, 0].max()
    number = np.minimum((values[:, 0] - low) / (high - low) * BINS, BINS - 1).astype(int)
    held = np.unique(number)
    drawn = np.bincount(number[rows], minlength=BINS)[held] / DRAWS
    assert len(held) < BINS  # a gap is not drawn, nor are those beside it drawn for it
    np.testing.assert_allclose(drawn, 1 / len(held), rtol=0.2)
    # Within a bin all rows alike.
    crowded = np.flatnonzero(number == 0)
    share = np.isin(rows, crowded[: len(crowded) // 2]).sum() / np.isin(rows, crowded).sum()
    assert share == pytest.approx(0.5, abs=0.06)


def test_dimensions_share_the_draws(values, rng):
    found = balanced_sampler(values)
    rows = found.draw(rng.random((DRAWS, 2), np.float32))
    for column, sign in ((0, 1), (1, 1), (1, -1)):
        far = np.argsort(-sign * values[:, column])[:10]
        assert np.isin(rows, far).mean() > 10 * len(far) / len(values)


def test_no_chance_leads_beyond_the_rows(values):
    last = np.nextafter(np.float32(1), np.float32(0))
    chance = np.array([[0, 0], [0, last], [last, 0], [last, last]], np.float32)
    found = balanced_sampler(values)
    assert set(found.draw(chance)) <= set(range(len(values)))
    assert found.bounds[-1] == len(found.rows) == 2 * len(values)
    assert found.draw(chance)[-1] == np.argmax(values[:, 1])


def test_what_never_changes_is_one_bin(rng):
    found = balanced_sampler(np.full((7, 1), 3.0, np.float32))
    assert set(found.draw(rng.random((200, 2), np.float32))) == set(range(7))


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_an_encoder_that_tells_goals_sees_rare_ones_often(images, weight, monkeypatch):
    gathered = []

    class Watched(Images):
        def gather(self, rows):
            gathered.append(rows[:16])
            return super().gather(rows)

    monkeypatch.setattr(encoder, "Images", Watched)
    goals = np.zeros_like(images.achieved_goals)
    goals[[40, 90], 0] = 1.0
    data = replace(images, achieved_goals=goals)
    how = {"hidden": (4,), "dim": 2, "temperature": 0.5, "updates": 40, "batch": 16}
    how |= {"learning_rate": 1e-3, "key": jax.random.key(0), "quiet": True}
    train_encoder(data, goal_weight=weight, units=not weight, **how)
    seen = np.isin(np.concatenate(gathered), [40, 90]).mean()
    # Of three bins, one has both; half of the draws are from bins.
    assert seen == pytest.approx(1 / 6 if weight else 2 / len(goals), abs=0.05)
