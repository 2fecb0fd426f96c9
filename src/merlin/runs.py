"""Run folders: what a training run leaves on disk, and policies read back from it.

run.json                     everything that was asked for
result.json                  scores of all seeds, once they are done
checkpoint-SEEDS.safetensors the newest training state
seed-S/policy.safetensors    the policy after the last update
seed-S/best.safetensors      the policy with the best evaluation (the paper's protocol)
seed-S/metrics.jsonl         losses and evaluations by update, also as TensorBoard events
seed-S/result.json           scores of this seed
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tensorboardX import SummaryWriter

from merlin.checkpoint import load_tree, read_metadata, save_tree
from merlin.errors import MerlinError
from merlin.files import read_json, write_bytes
from merlin.learners import LEARNERS, Learner, Policy
from merlin.types import Moments, Spec

FORMAT, SCHEMA = "merlin-run", 1
CHECKPOINTS = ("final", "best")
_ASKED = (
    *("algo", "settings", "task", "data", "seeds", "dimensions", "together"),
    *("updates", "eval_every", "eval_episodes", "final_episodes", "log_every", "checkpoint_every"),
)


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


def method_name(learner: Learner) -> str:
    """The name under which a learner's class is registered."""
    for name, method in LEARNERS.items():
        if type(learner) is method:
            return name
    raise MerlinError(f"{type(learner).__name__}: is no registered method; add it to LEARNERS.")


def learner_settings(learner: Learner) -> dict[str, Any]:
    """A learner's fields as JSON can hold them."""
    return json.loads(json.dumps(dataclasses.asdict(learner)))  # type: ignore[call-overload]


def restore_learner(name: str, settings: dict[str, Any], where: Path) -> Learner:
    """The learner that `learner_settings` described."""
    if name not in LEARNERS:
        raise MerlinError(f"{where}: method {name!r} is not known to this version of merlin.")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    try:
        return LEARNERS[name](**values)
    except TypeError as error:
        raise MerlinError(f"{where}: the settings do not fit {name} ({error}).") from None


def save_policy(path: Path, policy: Policy, learner: Learner, spec: Spec, about: dict) -> None:
    """Write a policy with all that is needed to act with it."""
    metadata = {
        "algo": method_name(learner),
        "settings": learner_settings(learner),
        "observation_shape": list(spec.observation_shape),
        "action_dim": spec.action_dim,
        "goal_dim": spec.goal_dim,
        "max_horizon": spec.max_horizon,
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
        )
    except KeyError as error:
        raise MerlinError(f"{path}: lacks {error}, so it is not a policy; train anew.") from None
    like = jax.eval_shape(lambda key: learner.policy(learner.init(key, spec)), jax.random.key(0))
    return load_tree(path, like)[0]


def _no_moments(shape: list[int]) -> Moments:
    return Moments(np.zeros(shape, np.float32), np.ones(shape, np.float32))


def read_config(folder: Path) -> dict[str, Any]:
    """What a run was asked to do."""
    if not folder.is_dir():
        raise MerlinError(f"{folder}: no such run folder; give what `merlin train --out` made.")
    config = read_json(folder / "run.json", "a run folder")
    if config.get("format") != FORMAT or config.get("schema") != SCHEMA:
        raise MerlinError(f"{folder / 'run.json'}: was written by another version of merlin.")
    missing = set(_ASKED) - config.keys()
    if missing:
        raise MerlinError(f"{folder / 'run.json'}: lacks {min(missing)!r}; train anew.")
    return config


def load_run(path: str | Path, checkpoint: str = "final") -> Run:
    """Open a finished run; `checkpoint` is 'final' or 'best'."""
    folder = Path(path)
    if checkpoint not in CHECKPOINTS:
        raise MerlinError(f"--checkpoint: {checkpoint!r} is neither final nor best.")
    config = read_config(folder)
    file = "policy.safetensors" if checkpoint == "final" else "best.safetensors"
    policies = []
    for seed in config["seeds"]:
        at = folder / f"seed-{seed}" / file
        if not at.exists():
            raise MerlinError(
                f"{at}: is not there yet; finish the run with "
                f"`merlin train --out {folder} --resume`."
            )
        policies.append(load_policy(at))
    result = folder / "result.json"
    return Run(
        config=config,
        policies=tuple(policies),
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
