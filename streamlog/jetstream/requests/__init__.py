"""A request's JSON: the fields of each request and their types. Pure."""
