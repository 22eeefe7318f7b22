"""Who a client of the NATS port is, and which subjects it may use.

- ``port_authenticator`` looks at a CONNECT and makes a ``AdmittedClient`` of it: passwords, tokens, NKeys,
  certificates, JWTs.
- ``operator_jwt`` the chain operator, account, user of JWTs, and what a user's JWT says; ``account_files`` where
  the JWTs of the operator and of the accounts come from.
- ``subject_permissions`` lists of allowed and denied subjects, with nats-server's semantics.
- ``err`` the texts of ``-ERR``.
"""
