"""Trackers, and filing a finished run into one."""

from d3bot.tracker.base import Tracker
from d3bot.tracker.filing import file_run
from d3bot.tracker.folder import FolderTracker

__all__ = ["FolderTracker", "Tracker", "file_run"]
