"""Tiered streams read from both places: what is in the object store from there, the rest from the nodes.

- ``stored_ranges``: what of a range is in the store. Pure.
- ``tiered_location``: plans, from the nodes' word and the manifests that count.
- ``segment_objects``: objects of the store as the segment files that they hold.
- ``tiered_reader``: rows of one range, first from objects, then from servers.
"""
