"""The paper's illustrative experiments: reversing random walks away from a goal."""
