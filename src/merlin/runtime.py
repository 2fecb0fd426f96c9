"""Act with a trained policy using NumPy alone: the public name of `merlin.deploy.numpy_policy`.

import merlin.runtime

policy = merlin.runtime.load("runs/push")
action = policy(state, goal)  # or policy({"observation": state, "desired_goal": goal})
"""

from merlin.deploy.numpy_policy import MapPolicy, MixturePolicy, Policy, load
from merlin.deploy.onnx_policy import OnnxPolicy
from merlin.deploy.weights import Weights, read

__all__ = ["MapPolicy", "MixturePolicy", "OnnxPolicy", "Policy", "Weights", "load", "read"]
