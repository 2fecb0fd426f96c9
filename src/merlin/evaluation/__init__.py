"""Scoring policies in their tasks: episodes, statistics, figures, videos."""
