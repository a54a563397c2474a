"""Reads and writes files: documents, typed structs, containers and atomic replacement."""
