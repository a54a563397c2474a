"""What is wrong with an installation, found without importing what may be broken."""
