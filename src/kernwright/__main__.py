"""``python -m kernwright``: the command line where no script is installed."""

from kernwright.cli.main import main

if __name__ == "__main__":
    main()
