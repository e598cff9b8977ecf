"""`python -m uetproto` is `uetproto`."""

from uetproto.cli.main import run

if __name__ == "__main__":
    run()
