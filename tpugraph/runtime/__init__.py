"""How a Program runs: sessions, the emulator, checkpoints."""
