"""The options of a read and of a write, checked before anything is read or written."""
