"""Drawings of the documentation, by kind. tools/docs_figures.py writes them."""
