"""`python -m d3bot`."""

from d3bot.cli import main

main()
