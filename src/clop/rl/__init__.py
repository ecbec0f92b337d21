"""Agents on Procgen."""
