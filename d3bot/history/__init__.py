"""Runs on disk, and what changed between two of them."""
