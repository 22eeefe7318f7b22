"""A stream as the metadata have it: its settings under all their names, its subjects, the
transforms and republishing of its messages, and whether it takes records."""
