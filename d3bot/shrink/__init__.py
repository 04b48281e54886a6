"""A failing trial made smaller while it fails with the same key.  Pure: what a candidate does is asked from outside."""

from d3bot.shrink.candidates import smaller
from d3bot.shrink.loop import Ask, Shrunk, shrink

__all__ = ["Ask", "Shrunk", "shrink", "smaller"]
