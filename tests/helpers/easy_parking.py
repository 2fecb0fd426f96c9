"""highway-env's parking lot with a tolerance that a simple controller meets now and then."""

import gymnasium
from highway_env.envs.parking_env import ParkingEnv


def easy(**arguments):
    return ParkingEnv(config={"success_goal_reward": 0.3}, **arguments)


if "easy/Parking-v0" not in gymnasium.registry:
    gymnasium.register("easy/Parking-v0", entry_point=easy, max_episode_steps=30)
