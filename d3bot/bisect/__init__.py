"""Bisection over what exists: the search is a pure function, what it asks and finds is plain data."""

from d3bot.bisect.memo import Memo
from d3bot.bisect.order import by_commit
from d3bot.bisect.search import Answer, OutOfTimeError, Searched, search
from d3bot.bisect.words import conclusion, describe

__all__ = ["Answer", "Memo", "OutOfTimeError", "Searched", "by_commit", "conclusion", "describe", "search"]
