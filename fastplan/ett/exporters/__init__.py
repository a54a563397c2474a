"""Figures of a running job for Prometheus and OpenTelemetry, off unless they are asked for.

A thread reads the file that the recorder writes, so a step costs nothing more. Whatever goes wrong
there, such as a port that is taken or a server that is gone, is logged once and ends there.
"""
