"""What a Fetch holds: sessions (KIP-227), one partition's part, delayed until there is enough."""
