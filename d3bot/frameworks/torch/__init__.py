"""PyTorch: its layers, its setting families, and how a trial is written."""
