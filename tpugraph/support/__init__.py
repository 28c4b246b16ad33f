"""What the whole house stands on: errors, files that are written whole, progress, graph algorithms on numbers."""
