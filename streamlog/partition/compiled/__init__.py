"""What each append does to a partition, compiled."""
