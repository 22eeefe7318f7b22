"""In the way of the real one for programs that tests start: they are as they are installed.

kio loads hypothesis wherever it finds it, at every start, which takes longer than all the rest.
"""

raise ImportError("hypothesis is for tests")
