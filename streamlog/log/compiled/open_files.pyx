# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Writes to the end of a file, compiled. ``open_files.pyi`` says what it means."""

from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from posix.types cimport off_t

from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from os import fstat

from streamlog.errors import StorageFailed

SOURCES = STREAMLOG_SOURCES

cdef enum:
    UNKNOWN = -1  # no device


cdef class OpenFile:
    """An open file that stays open while it is pinned."""


cdef class OpenFiles:
    """Of a pool, what a write needs."""

    cpdef OpenFile write(self, str path, data, int64_t position, OpenFile known=None):
        """Write ``data`` at the end of the file at ``path``, which is ``position``; the file.

        ``known``: what the last call for the path returned. It is used while the pool has it, and
        may be closed between two calls: very many files are written to now and then.
        Raises OSError, when the file ends at ``position`` as before; StorageFailed where it does not.
        """
        cdef OpenFile opened = known
        cdef Py_ssize_t size = len(data), written
        cdef bint is_closed
        with self._lock:
            if opened is None or opened.is_gone:
                opened = self._files.get(path)
                if opened is None:
                    opened = self._add(path, self.disk.open(path))
            opened.used = True
            opened.pins += 1
        try:
            written = opened.file.pwrite(data, position)
            if written < size:
                self._write_rest(opened, data, position, written)
        except OSError:
            undo(opened, position)
            raise
        finally:
            with self._lock:  # as ``unpin``
                opened.pins -= 1
                is_closed = not opened.pins and opened.is_gone
                if not is_closed and len(self._files) > self.open_files_max:
                    self._evict()
            if is_closed:
                self._close(opened)
        return opened


cdef undo(OpenFile opened, int64_t position):
    try:
        opened.file.truncate(position)
    except OSError as error:
        raise StorageFailed(f"{opened.path}: cannot be cut back to {position}") from error


cdef extern from "unistd.h" nogil:
    ssize_t pwrite(int fd, const void* data, size_t size, off_t position)
    ssize_t read(int fd, void* data, size_t size)
    ssize_t write(int fd, const void* data, size_t size)
    int fdatasync(int fd)


cdef class FileDescriptor:
    """Of an open file."""

    def __init__(self, int fd):
        self._fd = fd
        self._device = UNKNOWN

    def device(self):
        """Of the file system that it is in, as ``os.stat`` has it; asked once. Raises OSError."""
        if self._device == UNKNOWN:
            self._device = fstat(self._fd).st_dev
        return self._device

    def pwrite(self, data, int64_t position):
        """The count of bytes written, which may be fewer than given. Raises OSError."""
        cdef const unsigned char[::1] view
        cdef const void* start
        cdef Py_ssize_t size
        cdef ssize_t written
        if type(data) is bytes:
            start = PyBytes_AS_STRING(data)
            size = PyBytes_GET_SIZE(data)
        else:
            view = data
            size = view.shape[0]
            start = &view[0] if size else NULL
        while True:
            with nogil:
                written = pwrite(self._fd, start, size, position)
            if written >= 0:
                return written
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()  # raises what a handler does; else it is tried again


cdef struct SyncRequest:
    int64_t number
    int64_t fd  # the error of its sync, in the answer; 0: it has succeeded


SYNC_REQUEST_BYTES = sizeof(SyncRequest)


def serve_syncs(int requests, int answers):
    """Take requests from a pipe, sync each, and put the answer into another pipe, until the first
    one ends. The interpreter lock is not held: a sync does not wait for it, and no other thread waits for
    a sync.
    """
    with nogil:
        _serve_syncs(requests, answers)


cdef int _serve_syncs(int requests, int answers) noexcept nogil:
    cdef SyncRequest request
    cdef ssize_t count
    while True:
        count = read(requests, &request, sizeof(request))
        if count < 0 and errno == EINTR:
            continue
        if count != sizeof(request):  # a pipe takes, and gives, so few bytes as a whole
            return 0
        while fdatasync(<int>request.fd) != 0:
            if errno != EINTR:
                request.fd = errno
                break
        else:
            request.fd = 0
        while write(answers, &request, sizeof(request)) < 0:
            if errno != EINTR:
                return 0  # the event loop has closed its end
