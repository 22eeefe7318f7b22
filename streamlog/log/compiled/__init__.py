"""What each append does to a log, compiled."""
