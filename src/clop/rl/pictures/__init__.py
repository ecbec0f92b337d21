"""Pictures of agents: a moment of play, agents side by side, and the heat of what they look at."""
