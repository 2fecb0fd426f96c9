"""Run folders: what a training run leaves on disk, and policies read back from it.

run.json                     everything that was asked for
result.json                  scores of all seeds, once they are done
checkpoint-SEEDS.safetensors the newest training state
seed-S/policy.safetensors    the policy after the last update
seed-S/best.safetensors      the policy with the best evaluation (the paper's protocol)
seed-S/metrics.jsonl         losses and evaluations by update, also as TensorBoard events
seed-S/result.json           scores of this seed
seed-S/augmented/            the trajectories that were made for it, if the method makes any
seed-S/encoded/              the recorded ones with latents for images, encoder.safetensors beside
                             them, if the method takes only vectors
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tensorboardX import SummaryWriter

from merlin.augment import AUGMENTATIONS, Augmentation
from merlin.augment.encoder import Encoder
from merlin.checkpoint import load_tree, save_tree
from merlin.errors import MerlinError
from merlin.files import read_json, write_bytes
from merlin.folders import policy_file, read_config
from merlin.latents import SeeingPolicy, blank_encoder, describe_encoder, seeing
from merlin.learners import LEARNERS, Learner, Policy
from merlin.methods import method_name, split_name
from merlin.tensors import read_metadata
from merlin.types import Moments, Spec


@dataclass(frozen=True)
class Run:
    """A finished run: one policy per seed and what they scored."""

    config: dict[str, Any]
    policies: tuple[Policy, ...]
    result: dict[str, Any]
    folder: Path | None = None

    @property
    def policy(self) -> Policy:
        """The policy of the first seed."""
        return self.policies[0]


def settings_of(method: Learner | Augmentation) -> dict[str, Any]:
    """The fields of a learner or an augmentation as JSON can hold them."""
    return json.loads(json.dumps(dataclasses.asdict(method)))  # type: ignore[call-overload]


def restore_learner(name: str, settings: dict[str, Any], where: Path) -> Learner:
    """The learner that `settings_of` described; `name` is that of the method."""
    try:
        learner, _ = split_name(name)
    except MerlinError:
        message = f"{where}: method {name!r} is not known to this version of merlin."
        raise MerlinError(message) from None
    return _restore(learner, LEARNERS[learner], settings, where)


def restore_augmentation(about: dict[str, Any] | None, where: Path) -> Augmentation | None:
    """The augmentation that a run was started with."""
    if about is None:
        return None
    name = about.get("name")
    if name not in AUGMENTATIONS:
        message = f"{where}: augmentation {name!r} is not known to this version of merlin."
        raise MerlinError(message)
    return _restore(name, AUGMENTATIONS[name][0], about.get("settings", {}), where)


def _restore(name: str, kind: type, settings: dict[str, Any], where: Path) -> Any:
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise MerlinError(f"{where}: the settings do not fit {name} ({error}).") from None


def save_encoder(path: Path, encoder: Encoder) -> None:
    """Write the encoder of images that a seed was trained with."""
    save_tree(path, encoder, {"encoder": describe_encoder(encoder)})


def load_encoder(path: Path) -> Encoder:
    """Read it back."""
    return load_tree(path, blank_encoder(read_metadata(path)["encoder"]))[0]


def save_policy(path: Path, policy: Policy, learner: Learner, spec: Spec, about: dict) -> None:
    """Write a policy with all that is needed to act with it."""
    if isinstance(policy, SeeingPolicy):
        about = {"encoder": describe_encoder(policy.encoder), **about}
    metadata = {
        "algo": method_name(learner),
        "settings": settings_of(learner),
        "observation_shape": list(spec.observation_shape),
        "action_dim": spec.action_dim,
        "goal_dim": spec.goal_dim,
        "max_horizon": spec.max_horizon,
        **({"goal_image": True} if spec.goal_image else {}),
        **about,
    }
    save_tree(path, policy, metadata)


def load_policy(path: Path) -> Policy:
    """Read a policy file."""
    about = read_metadata(path)
    try:
        learner = restore_learner(about["algo"], about["settings"], path)
        blank = np.zeros(about["action_dim"], np.float32)
        spec = Spec(
            observation_shape=tuple(about["observation_shape"]),
            action_low=blank,
            action_high=blank,
            goal_dim=about["goal_dim"],
            max_horizon=about["max_horizon"],
            observation_moments=_no_moments(about["observation_shape"]),
            goal_moments=_no_moments([about["goal_dim"]]),
            tolerance=0.0,
            goal_image=about.get("goal_image", False),
        )
    except KeyError as error:
        raise MerlinError(f"{path}: lacks {error}, so it is not a policy; train anew.") from None
    like = jax.eval_shape(lambda key: learner.policy(learner.init(key, spec)), jax.random.key(0))
    if "encoder" in about:
        like = seeing(blank_encoder(about["encoder"]), like)
    return load_tree(path, like)[0]


def _no_moments(shape: list[int]) -> Moments:
    return Moments(np.zeros(shape, np.float32), np.ones(shape, np.float32))


def load_run(path: str | Path, checkpoint: str = "final") -> Run:
    """Open a finished run; `checkpoint` is 'final' or 'best'."""
    folder = Path(path)
    config = read_config(folder)
    files = [policy_file(folder, seed, checkpoint) for seed in config["seeds"]]
    result = folder / "result.json"
    return Run(
        config=config,
        policies=tuple(map(load_policy, files)),
        result=read_json(result, "a result") if result.exists() else {},
        folder=folder,
    )


class SeedLog:
    """metrics.jsonl and TensorBoard events of one seed, cut back to where a run resumes."""

    def __init__(self, folder: Path, resume_step: int):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        kept = b"".join(
            line + b"\n" for line in _lines(path) if json.loads(line)["step"] <= resume_step
        )
        if resume_step == 0:
            for stale in folder.glob("events.*"):
                stale.unlink()
        write_bytes(path, kept)
        self._file = path.open("ab")
        self._events = SummaryWriter(str(folder), purge_step=resume_step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}).encode() + b"\n")
        self._file.flush()
        for name, value in values.items():
            self._events.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        self._events.close()


def _lines(path: Path) -> list[bytes]:
    """The whole lines of a log; a kill may have cut the last one short."""
    if not path.exists():
        return []
    return path.read_bytes().split(b"\n")[:-1]
