"""The documents that cross a border: run documents and agent messages. Needs pydantic only."""
