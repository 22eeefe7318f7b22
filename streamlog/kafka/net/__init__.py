"""Connections of the socket listener: sockets with and without TLS, frames in, responses and slices
of files out, limits before a login."""
