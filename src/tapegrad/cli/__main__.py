"""Run the command line: `python -m tapegrad.cli`."""

from tapegrad.cli import main

main()
