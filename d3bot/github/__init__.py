"""GitHub: a careful client, and what d3bot writes there.  The only room that ever holds a token."""
