"""The same management requests to JetStream and to streamlog, answers compared field by field.

``python -m compatibility.management`` does it and writes the section of docs/compatibility.md.

- ``request`` one request and the scenes they are played in; ``scenes`` all of them
- ``wire`` asks over a socket, whatever the bytes; ``jetstream`` the server to compare with
- ``answer`` an answer as fields; ``comparison`` what differs
- ``known`` which differences there are, and why; ``page`` the section that is made of it
"""
