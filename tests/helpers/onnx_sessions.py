"""ONNX graphs, ready to run."""

import onnxruntime


def session(content):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it would warn that the horizon has a default
    return onnxruntime.InferenceSession(content, options)
