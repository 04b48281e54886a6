"""Differential testing of distributed training: the same model on the same input must come out equivalent."""

__version__ = "0.1.0"
