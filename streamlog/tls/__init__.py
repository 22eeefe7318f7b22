"""TLS contexts of files in PEM, for servers, nodes and the command line alike.

- ``certificate``   a certificate's subject and dates, out of its DER (pure)
- ``contexts``       contexts of files; what is wrong with a file is one line that names its setting
- ``certificates``  a node's contexts as they are now, and the task that reads them again when files have changed
- ``watched_context``  one context of files, for a port of a program that is no node: it, too, is read again
- ``errors``        why a handshake failed, in words that say whose certificate and what to do

TLS 1.3, or 1.2 with ephemeral keys and AEAD suites, nothing else. No sockets here.
"""
