"""`python -m gatelab`: the command line, for where the entry point is not on the path."""

from gatelab.cli import main

if __name__ == "__main__":
    main()
