"""Workers: they claim runs, execute them, and take over from one another. One duty, one file."""
