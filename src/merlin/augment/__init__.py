"""Datasets from datasets: trajectories made by reverse models and by stitching."""
