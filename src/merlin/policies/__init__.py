"""Policies: the interface, and policies on vectors and images."""
