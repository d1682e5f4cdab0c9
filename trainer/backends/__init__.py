"""Backends run a plan's launches inside one arena. numpy.py is the reference for all others."""
