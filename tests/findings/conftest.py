"""Properties are judged by their result, not by how loaded the machine is."""

from hypothesis import settings

settings.register_profile("d3bot", deadline=None)
settings.load_profile("d3bot")
