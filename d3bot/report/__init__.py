"""A run for people: on the terminal, as a Markdown summary, as one HTML page."""

from d3bot.report.html import render_html
from d3bot.report.summary import summary_markdown
from d3bot.report.terminal import Progress, print_summary

__all__ = ["Progress", "print_summary", "render_html", "summary_markdown"]
