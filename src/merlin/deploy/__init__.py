"""Trained policies elsewhere: NumPy runtime, ONNX, and a page in the browser."""
