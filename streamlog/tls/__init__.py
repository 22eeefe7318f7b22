"""TLS contexts of files in PEM, for servers, nodes and the command line alike.

- ``certificate``   a certificate's subject and dates, out of its DER (pure)
- ``files``         contexts of files; what is wrong with a file is one line that names its setting
- ``certificates``  a node's contexts as they are now, and read again when files have changed
- ``following``     a context for a port that outlives it: who comes gets the newest
- ``trouble``       why a handshake failed, in words that say whose certificate and what to do

TLS 1.3, or 1.2 with ephemeral keys and AEAD suites, nothing else. No sockets and no tasks here.
"""
