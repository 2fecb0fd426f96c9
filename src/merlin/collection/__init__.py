"""Collection of datasets by playing episodes of a task."""
