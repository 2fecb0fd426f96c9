"""The paper's illustrative experiments: walks away from a goal, and the way back to it."""
