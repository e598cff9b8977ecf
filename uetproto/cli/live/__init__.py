"""This package has the commands that run endpoints on a real link: `serve`, `send`, `ping` and `probe`."""
