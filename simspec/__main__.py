"""``python -m simspec``."""

from simspec.cli.main import run

if __name__ == "__main__":
    run()
