"""The JSON API: each of ``control``'s operations at its method and path below ``/api/v1``.

``requests`` makes arguments of a request, ``routes`` calls the operation and answers, ``errors`` says which
status an error has, ``openapi`` describes all of it. A new operation appears in all four by itself.
"""
