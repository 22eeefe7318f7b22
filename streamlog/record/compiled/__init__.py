"""The hot loops, in Cython; the ``.pyi`` beside each says what it means. ``codec`` and ``columns`` are
used by way of the modules of that name in ``record``."""
