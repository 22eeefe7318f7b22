"""Settings of nodes and topics, and rules, in the form that Kafka's requests give them."""
