"""Where a session runs when it is not in this process: workers, and masters with TPUs."""
