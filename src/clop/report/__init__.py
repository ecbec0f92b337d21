"""Tables and figures from run records; imports neither ``rl`` nor ``vision``."""
