# The digest of an extension's sources, which setup.py passes to the C compiler.
cdef extern from *:
    """
    #ifndef STREAMLOG_SOURCES
    #define STREAMLOG_SOURCES 0
    #endif
    """
    const unsigned long long STREAMLOG_SOURCES
