"""Where rows come from: files, object storage, tables and streams. pyarrow reads them all."""
