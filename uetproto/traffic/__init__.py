"""This package has traffic from a profile: endpoints that talk over a direct wire in virtual time, written as a
capture.
"""
