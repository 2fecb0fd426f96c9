"""Where data comes from: behaviour policies and their collection."""
