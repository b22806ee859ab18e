"""One agent run, two worker processes, six times SIGKILL: `make demo`."""
