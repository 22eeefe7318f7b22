# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A large frame of which a part has come, compiled. ``partial_frame.pyi`` says what it means."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

SOURCES = STREAMLOG_SOURCES


cdef class PartialFrame:
    cdef bytes _frame
    cdef readonly Py_ssize_t missing
    cdef int _views

    def __init__(self, Py_ssize_t size):
        if size <= 0:
            raise ValueError("a partial frame has bytes that are missing")
        self._frame = PyBytes_FromStringAndSize(NULL, size)
        self.missing = size

    cdef char* _room(self):
        return PyBytes_AS_STRING(self._frame) + PyBytes_GET_SIZE(self._frame) - self.missing

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self._frame is None:
            raise BufferError("the frame was taken")
        PyBuffer_FillInfo(buffer, self, self._room(), self.missing, False, flags)
        self._views += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._views -= 1

    def put(self, const unsigned char[::1] data):
        cdef Py_ssize_t count = min(self.missing, data.shape[0])
        if count:
            memcpy(self._room(), &data[0], count)
            self.missing -= count
        return count

    def filled(self, Py_ssize_t count):
        if not 0 <= count <= self.missing:
            raise ValueError(f"{count} bytes received into room for {self.missing}")
        self.missing -= count

    def take(self):
        if self._frame is None or self.missing or self._views:
            raise ValueError("the frame is not whole, is being received or was taken")
        frame, self._frame = self._frame, None
        return frame
