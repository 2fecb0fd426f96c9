"""gymnasium-robotics' ant in its maze, started near its goal: within the radius now and then."""

import gymnasium
from gymnasium_robotics.envs.maze.ant_maze_v5 import AntMazeEnv


class EasyAnt(AntMazeEnv):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.position_noise_range = 0.15

    def generate_reset_pos(self):
        return self.goal.copy()


if "easy/Ant-v0" not in gymnasium.registry:
    gymnasium.register(
        "easy/Ant-v0",
        entry_point=EasyAnt,
        max_episode_steps=60,
        kwargs={"continuing_task": True, "reset_target": False},
    )
