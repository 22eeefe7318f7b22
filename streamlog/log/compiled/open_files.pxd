"""Open files, for compiled code that writes to them."""

from libc.stdint cimport int64_t


cdef class OpenFile:
    cdef public str path
    cdef public object file
    cdef public object note
    cdef public int64_t pins
    cdef public bint used
    cdef public bint is_gone


cdef class OpenFiles:
    cdef public object disk
    cdef public int64_t open_files_max
    cdef public object _lock
    cdef public object _files

    cpdef OpenFile write(self, str path, data, int64_t position, OpenFile known=*)


cdef class FileDescriptor:
    cdef public int _fd
    cdef int64_t _device
