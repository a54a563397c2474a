"""The Python interface of the native core: estimate, search, optimize, re-plan, verify, bound."""
