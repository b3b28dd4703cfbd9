"""Columns of numbers in Parquet files."""
