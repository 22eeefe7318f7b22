"""Liftbridge's envelope: decoded, and answered in its form. Pure."""
