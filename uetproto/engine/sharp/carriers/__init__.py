"""Carriers of SHARP messages: RoCE queue pairs and reserved PDCs of UET."""
