"""Released values as rows of a table: in PostgreSQL, DuckDB, Parquet or CSV. Made from published bytes alone."""
