"""Scores that can be compared and checked."""
