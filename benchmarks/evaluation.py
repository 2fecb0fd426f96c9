"""Evaluation steps per second: policy and environment together, and the environment alone.

Prints one JSON line.
"""

import json
import time

import jax
import numpy as np

import merlin
from merlin.data.spec import make_spec
from merlin.envs.batch import make_batch
from merlin.envs.rollout import rollout
from merlin.evaluation.evaluate import play

TASK, EPISODES, ROUNDS = "PointRooms", 1000, 5


def main() -> None:
    task = merlin.TASKS[TASK]
    data = merlin.collect(task, "random", episodes=200)
    learner = merlin.Merlin()
    policy = learner.policy(learner.init(jax.random.key(0), make_spec(data, learner.sampling)))
    batch = make_batch(task, task.environments)
    still = np.zeros((task.environments, task.action_dim), np.float32)
    play(policy, task, episodes=task.environments)
    together, alone = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        play(policy, task, episodes=EPISODES)
        together.append(EPISODES * task.episode_steps / (time.perf_counter() - begin))
        begin = time.perf_counter()
        for wave in range(EPISODES // task.environments):
            seeds = range(wave * task.environments, (wave + 1) * task.environments)
            rollout(batch, lambda *_: still, seeds, task.episode_steps)
        alone.append(EPISODES * task.episode_steps / (time.perf_counter() - begin))
    print(
        json.dumps(
            {
                "benchmark": f"evaluation, {TASK}, {EPISODES} episodes",
                "steps_per_second": round(max(together)),
                "environment_alone": round(max(alone)),
                "fraction_of_environment": round(max(together) / max(alone), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
