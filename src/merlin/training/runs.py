"""Run folders: the files of a training run, and loading policies from them.

run.json                     the configuration
result.json                  scores of all seeds, once they are done
checkpoint-SEEDS.safetensors the newest training state
previous-SEEDS.safetensors   the one before it, in case the newest is damaged
seed-S/policy.safetensors    the policy after the last update
seed-S/best.safetensors      the policy with the best evaluation (the paper's protocol), or with
                             the lowest error on held-out episodes if there is no task
seed-S/metrics.jsonl         losses and evaluations by update, also as TensorBoard events
                             if tensorboardX is installed
seed-S/result.json           scores of this seed
seed-S/augmented/            synthetic trajectories, if the method makes any
seed-S/encoded/              recorded trajectories with latents in place of images, and
                             encoder.safetensors, if the method needs vectors
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import merlin
from merlin.augment import AUGMENTATIONS, Augmentation
from merlin.augment.encoder import Encoder
from merlin.augment.latents import Latents, blank_encoder, describe_encoder
from merlin.data import Dataset, load
from merlin.data.goal_table import check_goals
from merlin.data.splits import hold_out
from merlin.envs.registry import Task, choose, own
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import FINAL_SEED, Evaluation, evaluate
from merlin.evaluation.trust import Trust, trust
from merlin.io import tensors
from merlin.io.files import read_json
from merlin.io.schema import read_as
from merlin.learners import LEARNERS, Learner
from merlin.learners.registry import method_name, split_name
from merlin.nets.checkpoint import fit_tree, save_tree
from merlin.policies.base import Policy
from merlin.policies.images import SeeingPolicy
from merlin.training.folder import RunConfig, read_config
from merlin.training.layout import policy_file
from merlin.training.policy_schema import EncoderAbout, check_encoder, read_policy
from merlin.training.results import Result, SeedResult
from merlin.types import Moments, Spec


@dataclass(frozen=True)
class Run:
    """A finished run: one policy per seed, and their scores.

    `policy`, `evaluate`, `export` and `trust` use the first seed; `policies` has all of them.
    """

    config: RunConfig
    policies: tuple[Policy, ...]
    result: Result | None  # None if the run is not finished
    folder: Path | None = None
    rows: tuple[SeedResult, ...] = ()  # per episode, if the run was trained in this process
    checkpoint: str = "final"  # which policies these are

    def __repr__(self) -> str:
        config = self.config
        where = "in memory" if self.folder is None else f"in {self.folder}"
        scored = self.result and self.result.final
        score = ""
        if scored:
            means = scored["return"]["mean"], scored["success"]["mean"]
            score = f", final return {means[0]:.2f} and success {means[1]:.2f}"
        return (
            f"<Run {where}: {config.algo} on {config.task or 'own data'}, "
            f"{config.schedule.updates} updates, seeds {', '.join(map(str, config.seeds))}{score}>"
        )

    @property
    def policy(self) -> Policy:
        """The policy of the first seed."""
        return self.policies[0]

    def evaluate(
        self,
        task: Task | str | None = None,
        *,
        episodes: int | None = None,
        seed: int = FINAL_SEED,
        horizon: int | None = None,
        temperature: float | None = None,
    ) -> Evaluation:
        """Play episodes with the policy of the first seed and score them.

        `task` defaults to the task of the run, and `episodes` to the number on which its final
        policies are scored. For the other arguments, see `merlin.evaluate`.
        """
        config = self.config
        if config.task is None and task is None:
            raise MerlinError("task: the run has none; name one, or use run.trust() instead.")
        chosen = choose(config.task, task)
        assert chosen is not None
        chosen = chosen.as_seen(config.dimensions[:-2], config.goal)
        chosen.check_fit(config.dimensions, "the run")
        return evaluate(
            self.policy,
            chosen,
            episodes=chosen.final_episodes if episodes is None else episodes,
            seed=seed,
            horizon=horizon,
            temperature=temperature,
        )

    def export(self, out: str | Path, *, overwrite: bool = False) -> dict[str, Any]:
        """Write the policy of the first seed as ONNX, once it is verified to act like `policy`."""
        if self.folder is None:
            raise MerlinError("run: is only in memory; train with out=FOLDER to export it.")
        seed, checkpoint = self.config.seeds[0], self.checkpoint
        # By its public name: `merlin.deploy` comes after `merlin.training` in the order of imports.
        return merlin.export(
            self.folder, out, seed=seed, checkpoint=checkpoint, overwrite=overwrite
        )

    def trust(
        self,
        goals: Float[np.ndarray, "n goal"] | None = None,
        *,
        data: Dataset | None = None,
        tolerance: float | None = None,
        stay: bool = False,
        quiet: bool = True,
    ) -> Trust:
        """Assess the policy of the first seed on the held-out episodes.

        `goals` are the goals to assess; by default they are spread over the data. Pass `data` for a
        run that was trained on data in memory, and a `tolerance` for reaching a goal if the task
        defines none. With `stay`, a rehearsal counts only if it is near the goal at its end.
        Progress is shown unless `quiet`.
        """
        config, where = self.config, self.folder or "the run"
        if config.held_out is None:
            raise MerlinError(f"{where}: has no held-out episodes; train again with held_out=0.1.")
        if data is None:
            if config.data.path is None:
                raise MerlinError(f"{where}: was trained on data in memory; pass it as data.")
            data = load(config.data.path)
        if data.fingerprint() != config.data.fingerprint:
            raise MerlinError(
                f"{where}: its data has changed since it was trained; train again, or restore it."
            )
        task = own(config.task) if config.task else None
        if tolerance is None and task is not None:
            tolerance = task.success_tolerance or task.tolerance
        parts = _parts(data, config)
        if goals is not None:
            goals = check_goals(goals, config.dimensions[-1])
        return trust(self.policy, *parts, goals=goals, tolerance=tolerance, stay=stay, quiet=quiet)


def _parts(data: Dataset, config: RunConfig) -> tuple[Dataset, Dataset]:
    """The training data and the held-out data of a run."""
    trained, kept = hold_out(data, config.held_out or 0.0)
    assert kept is not None
    return trained, kept


def settings_of(method: Learner | Augmentation) -> dict[str, Any]:
    """The fields of a learner or an augmentation as JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(method)))  # type: ignore[call-overload]


def restore_learner(name: str, settings: dict[str, Any], where: Path) -> Learner:
    """Rebuild the learner described by `settings_of`; `name` is the method's name."""
    try:
        learner, _ = split_name(name)
    except MerlinError:
        message = f"{where}: method {name!r} is not known to this version of merlin."
        raise MerlinError(message) from None
    kind = LEARNERS[learner]
    return _restore(learner, kind, {**kind.absent, **settings}, where)


def restore_augmentation(about: dict[str, Any] | None, where: Path) -> Augmentation | None:
    """Rebuild the augmentation of a run."""
    if about is None:
        return None
    name = about.get("name")
    if not isinstance(name, str) or name not in AUGMENTATIONS:
        message = f"{where}: augmentation {name!r} is not known to this version of merlin."
        raise MerlinError(message)
    settings = read_as(dict[str, Any], about.get("settings", {}), where)
    return _restore(name, AUGMENTATIONS[name][0], settings, where)


def restore_latents(settings: dict[str, Any], where: Path) -> Latents:
    """Rebuild the settings of a run's latents."""
    return _restore("latents", Latents, settings, where)


def _restore(name: str, kind: type, settings: dict[str, Any], where: Path) -> Any:
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := sorted(settings.keys() - known):
        raise MerlinError(f"{where}: the settings do not fit {name} ({unknown[0]!r} is unknown).")
    return read_as(kind, settings, where)


def save_encoder(path: Path, encoder: Encoder) -> None:
    """Write the image encoder of a seed."""
    save_tree(path, encoder, {"encoder": describe_encoder(encoder)})


def load_encoder(path: Path) -> Encoder:
    """Read an image encoder."""
    arrays, about = tensors.read(path)
    told = read_as(EncoderAbout, about.get("encoder"), path)
    check_encoder(path, arrays, told)
    return fit_tree(arrays, blank_encoder(about["encoder"]), path)


def save_policy(path: Path, policy: Policy, learner: Learner, spec: Spec, about: dict) -> None:
    """Write a policy together with everything needed to act with it."""
    if isinstance(policy, SeeingPolicy):
        about = {"encoder": describe_encoder(policy.encoder), **about}
    metadata = {
        "algo": method_name(learner),
        "settings": settings_of(learner),
        "constants": dict(policy.constants),
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
    arrays, about = read_policy(path)
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
    like = jax.eval_shape(lambda key: learner.policy(learner.init(key, spec)), jax.random.key(0))
    if "encoder" in about:
        like = SeeingPolicy(blank_encoder(about["encoder"]), like)
    return fit_tree(arrays, like, path)


def _no_moments(shape: list[int]) -> Moments:
    return Moments(np.zeros(shape, np.float32), np.ones(shape, np.float32))


def load_run(path: str | Path, checkpoint: str = "final") -> Run:
    """Open a finished run; `checkpoint` is 'final' or 'best'."""
    folder = Path(path)
    config = read_config(folder)
    files = [policy_file(folder, seed, checkpoint) for seed in config.seeds]
    at = folder / "result.json"
    result = Result.from_json(read_json(at, "a result"), at) if at.exists() else None
    return Run(config, tuple(map(load_policy, files)), result, folder, checkpoint=checkpoint)
