"""Records as files: Parquet, lines of JSON, CSV; written as they come out of a read, and read to be written again.

``text_bytes`` has the rules by which bytes are text and text is bytes, without loss.
"""
