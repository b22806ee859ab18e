"""Small programs to read and run: `python -m examples.hello`; `make demo` for the large one."""
