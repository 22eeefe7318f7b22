"""What of the documentation is made out of the code: ``python -m documentation`` writes it.

A test holds the pages in ``docs/`` to it.
"""
