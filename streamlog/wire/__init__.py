"""Kafka's wire protocol: bytes to requests and responses, and back. Pure.

A frame is an i32 length and that many bytes: a header and a body. A request's header names the API
key, its version, a correlation id and the client; a response's header repeats the correlation id.
"Flexible" versions encode lengths as unsigned varints of n + 1 and end each struct with a buffer of
tagged fields.

- ``framing``   a byte stream cut into frames, with a limit
- ``header``    headers of requests and responses
- ``registry``  which API keys and versions this node speaks
- ``schema_codec`` a schema of ``schemas.json`` as a pair of functions, read and write
- ``api_messages`` every API but Fetch, as plain dicts
- ``fetch``     Fetch by hand: the one that must cost microseconds
- ``compiled``  what each request of a producer or a consumer does, held to the modules above by tests
- ``errors``    Kafka's error codes and ours, one table for both directions; errors by name

Schemas and error codes are generated from Kafka's, by way of ``kio`` (``tools/kafka_schemas.py``). Every
length is checked here against the bytes that are there. Nothing here knows a socket, a partition or a record.
"""
