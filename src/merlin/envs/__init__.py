"""Goal environments: the registry of tasks, the ten tasks, and stepping many at once."""
