"""Batches, as JetStream has them (ADR-50).

- ``batch_staging``: atomic batches, which are stored together or not at all.
- ``partial_refusal``: what goes on of a run, and of the atomic batches in it, where a part of it is refused.
- ``fast_batches``: fast batches, which are stored message by message and acknowledged together. Pure.
- ``fast_run``: what a partition's run has of fast batches, compiled.
- ``fast_batching``: fast batches on their way into one partition.
"""
