"""Experts: DDPG with hindsight replay, its training, scripted controllers and shipped weights."""
