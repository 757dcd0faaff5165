"""Pages and documents that are written to disk: one set of templates, one style sheet.

It lays out what it is given, and knows nothing of photos that were spliced or of experiments.
"""

from __future__ import annotations

from cpcapp.reports.rendering import data_uri, render

__all__ = ["data_uri", "render"]
