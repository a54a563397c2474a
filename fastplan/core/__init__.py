"""Problems and solutions: the Python face of the native core."""
