"""How fastplan reads and writes files: text, typed structs, and files that appear whole."""
