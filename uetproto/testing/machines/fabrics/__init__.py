"""This package has machines that drive whole networks of our own engines, without an adapter."""
