"""Answers to publishers: sent when what they answer is committed; the limits of what waits."""
