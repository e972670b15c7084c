"""Figures arranged as tables, in one file for each shape of table."""
