"""Tiered storage (KIP-405): sealed segments in an object store, and back.

- ``manifest``: which segments of a partition are in the store. Pure.
- ``object_layout``: the names of all objects. Pure.
- ``object_store``: requests to a store, with time-outs, retries, limits and errors.
- ``segment_object``: one sealed segment as one object, up and down.
- ``segment_transactions``: what such an object says of aborted transactions. Pure.
- ``blocking_store``: reads of a store by programs without an event loop.
- ``manifest_store``: manifests and stream descriptions in the store; orphans.
- ``segment_cache``: whole segments on the local disk, for reads of what is only in the store.
"""
