"""Running rendered scripts in the build's interpreter: zygotes, forked ranks, limits, kills."""
