"""`python -m sluice`, the same as `sluice`."""

from sluice.cli.main import run

if __name__ == "__main__":
    run()
