"""Speeds, as ratios: everything that is compared is timed in turns in one run."""
