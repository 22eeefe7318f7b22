"""Access control lists as Kafka has them (KIP-11, KIP-290): rules, filters of rules, and the answer
to "may this principal do that?". Pure."""
