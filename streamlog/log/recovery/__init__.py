"""From the folder that a crash left to an open log: what may be torn is read and cut, what is
damaged is reported, set aside and fetched again."""
