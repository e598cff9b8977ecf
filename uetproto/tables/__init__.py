# SPDX-License-Identifier: GPL-2.0-only
"""This package makes tables of captures, for Arrow, Polars, pandas, Parquet, CSV and SQL.

names.py       the names of the columns of the joined table, and the type of each
joined.py      the joined table: a row for each packet, from columns of NumPy
per_packet.py  columns that only packets one by one give
masks.py       display filters as masks over columns
pieces.py      the table of a capture, piece by piece
files.py       tables as Parquet, CSV and Arrow files
parallel.py    several captures at a time
sql.py         SQL over captures and tables
"""
