"""Scoring localizers: truth, protocols, controls."""
