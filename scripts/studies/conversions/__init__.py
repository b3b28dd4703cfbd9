"""When a converted log pays: logs, timings in turns, and the tables of docs/convert.md."""
