"""What all rooms stand on: errors, files that are written whole, progress, graph algorithms on numbers."""
