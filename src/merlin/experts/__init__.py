"""Experts: DDPG with hindsight replay, scripted controllers, and the shipped weights."""
