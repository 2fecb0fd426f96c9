"""Deployment of trained policies: a NumPy runtime, ONNX export, and a web page."""
