"""Who may do what, and how much of it: logins, credentials, rules, quotas.

- ``sasl`` SaslHandshake, SaslAuthenticate; ``scram_credentials`` users' passwords.
- ``acls`` rules; ``client_quotas`` how much clients may send and fetch.
"""
