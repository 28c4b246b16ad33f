"""The ``tpugraph`` command: one module for each of its commands, loaded when the command runs."""

from tpugraph.cli.command_line import main

__all__ = ["main"]
