"""Logins of the socket listener, and which right each request needs before its handler sees it."""
