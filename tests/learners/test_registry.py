"""Methods by name: learner, augmentation, settings, presets."""

import dataclasses

import numpy as np
import pytest

import merlin
from merlin.augment import AUGMENTATIONS, Rollouts, Stitch
from merlin.errors import MerlinError
from merlin.learners import LEARNERS, Merlin
from merlin.learners.registry import (
    PAIRS,
    Method,
    configure,
    dataset_values,
    method_name,
    method_names,
    split_name,
)


def test_a_plain_method_is_a_learner_alone():
    tuned = {"hindsight_ratio": 0.2, "horizon": 20}
    assert configure("merlin", {"hidden": "8"}, tuned) == Method(
        Merlin(hindsight_ratio=0.2, horizon=20, hidden=(8,)), None
    )


@pytest.mark.parametrize(
    ("name", "augmentation"),
    [
        ("merlin-p", Rollouts()),
        ("merlin-mb", Rollouts(forward=True)),
        ("merlin-np", Stitch()),
        ("merlin-ts", Stitch(forward=True)),
    ],
)
def test_names_of_the_paper(name, augmentation):
    assert configure(name, {}, {"horizon": 5}) == Method(Merlin(horizon=5), augmentation)
    assert method_name(Merlin(), augmentation) == name
    assert name in method_names()


def test_settings_go_where_their_field_is():
    settings = {"threshold": "auto", "horizon": "7", "encoder_hidden": "9,9", "trajectories": "3"}
    method = configure("merlin-np", settings)
    assert method.learner == Merlin(horizon=7)
    assert method.augmentation == Stitch(threshold="auto", encoder_hidden=(9, 9), trajectories=3)
    assert configure("merlin-np", {"threshold": "0.99"}).augmentation.threshold == 0.99


def test_no_field_is_both_the_learners_and_the_augmentations():
    """Else a setting would not say whose it is."""
    for learner in LEARNERS.values():
        own = {field.name for field in dataclasses.fields(learner)}
        for augmentation, _ in AUGMENTATIONS.values():
            assert not own & {field.name for field in dataclasses.fields(augmentation)}


@pytest.mark.parametrize(
    "name", [name for name, (learner, _) in PAIRS.items() if learner in LEARNERS]
)
def test_every_pair_has_the_release_preset(name):
    plain, release = configure(name), configure(name, preset="release")
    assert release.learner == plain.learner
    assert release.augmentation != plain.augmentation
    assert release.augmentation.forward == plain.augmentation.forward


def test_the_release_of_merlin_p_and_np():
    made = configure("merlin-p", {"kl_weight": "2"}, preset="release").augmentation
    assert (made.dynamics_layers, made.latent_scale, made.kl_weight) == (2, 1e-3, 2.0)
    assert configure("merlin-np", preset="release").augmentation.encoder_hidden == (512,) * 3


def test_any_learner_with_any_augmentation(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Other(Merlin):
        pass

    monkeypatch.setitem(LEARNERS, "other", Other)
    method = configure("other", {"threshold": "0.5"}, augment="forward-stitch")
    assert method == Method(Other(), Stitch(threshold=0.5, forward=True))
    name = method_name(*method)
    assert name == "other+forward-stitch"
    assert split_name(name) == ("other", "forward-stitch")
    assert configure(name, {"threshold": "0.5"}) == method
    assert configure("merlin", augment="reverse-stitch") == configure("merlin-np")


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ({"name": "merlin-npp"}, "method: no method is called 'merlin-npp'; did you mean"),
        ({"name": "merlin+nothing"}, "method: no"),
        ({"name": "merlin+"}, "method: no"),
        ({"name": "merlin", "augment": "stitch"}, "augment: no augmentation .* did you mean"),
        ({"name": "merlin-np", "augment": "reverse-model"}, "has reverse-stitch already"),
        ({"name": "merlin-np", "settings": {"treshold": "1"}}, "did you mean 'threshold'"),
        ({"name": "merlin-np", "settings": {"threshold": "often"}}, "threshold: often"),
        ({"name": "merlin-np", "settings": {"forward": "true"}}, "no field 'forward'"),
        ({"name": "merlin", "settings": {"threshold": "auto"}}, "merlin has no field 'threshold'"),
        ({"name": "merlin-np", "preset": "rel"}, "merlin-np has no preset 'rel'"),
    ],
)
def test_what_is_wrong_is_said(arguments, fragment):
    with pytest.raises(MerlinError, match=fragment):
        configure(**arguments)


def test_published_values_of_a_dataset():
    found = dataset_values("crl", "ogbench:pointmaze-giant-stitch-v0")
    assert found == {"discount": 0.995, "actor_random": 0.5, "alpha": 0.03}
    learner = configure("crl", {"alpha": "2"}, found).learner
    assert (learner.discount, learner.actor_random, learner.alpha) == (0.995, 0.5, 2.0)
    assert dataset_values("hiql", "ogbench:cube-single-play-v0") == {"subgoal_steps": 10}
    assert dataset_values("gcbc", "ogbench:pointmaze-giant-stitch-v0") == {}
    assert dataset_values("crl", "my-pointmaze") == {}


@pytest.mark.parametrize("name", LEARNERS)
def test_published_values_are_of_fields_that_are_tuned(name):
    tuned = {f.name for f in dataclasses.fields(LEARNERS[name]) if f.metadata.get("tuned")}
    for values in LEARNERS[name].by_dataset.values():
        assert values.keys() <= tuned


def test_strangers_have_no_name():
    with pytest.raises(MerlinError, match="add it to LEARNERS"):
        method_name(3)
    with pytest.raises(MerlinError, match="add it to AUGMENTATIONS"):
        method_name(Merlin(), 3)


def test_learners_are_made_by_name():
    assert merlin.make("merlin") == merlin.Merlin()
    assert merlin.make("wgcsl", batch_size=7) == merlin.WGCSL(batch_size=7)
    with pytest.raises(MerlinError, match=r"wgcsl: has no field 'batchsize'; .*'batch_size'\?$"):
        merlin.make("wgcsl", batchsize=7)
    with pytest.raises(MerlinError, match=r"no method is called 'wgcls'; did you mean 'wgcsl'\?$"):
        merlin.make("wgcls")
    assert merlin.make("merlin", horizon=np.int64(3), hidden=(8, 8)).hidden == (8, 8)
    with pytest.raises(MerlinError, match=r"^horizon: '5' is not an integer or None\.$"):
        merlin.make("merlin", horizon="5")
    with pytest.raises(MerlinError, match="is the learner merlin with the augmentation reverse-st"):
        merlin.make("merlin-np")
