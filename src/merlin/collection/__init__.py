"""Collecting datasets by playing tasks."""
