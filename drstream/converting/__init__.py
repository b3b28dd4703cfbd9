"""Logs in other files: from Parquet, Arrow IPC or text to Parquet or Arrow IPC, with all rows checked."""
