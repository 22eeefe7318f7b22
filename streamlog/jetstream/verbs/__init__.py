"""What each request about streams, the cluster and the account comes to."""
