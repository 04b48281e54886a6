"""The project's own scoreboard: what is found of what is planted, and what is reported where nothing is wrong."""
