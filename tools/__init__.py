"""Checks of this repository that no linter knows; ``make lint`` runs them."""
