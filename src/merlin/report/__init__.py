"""Rows on disk to tables, figures and one page."""
