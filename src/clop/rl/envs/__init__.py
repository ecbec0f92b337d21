"""Games that step together, on chosen levels: Procgen by two back ends."""
