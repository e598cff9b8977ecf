"""This package has trackers of packet delivery contexts (PDCs) and of RUDI and UUD, and the rules that judge their
events."""
