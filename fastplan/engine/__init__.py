"""The face of the native core: estimate, search, improve, follow, verify, bound."""
