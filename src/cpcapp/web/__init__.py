"""The local page: photos and tables in a browser, and the same over HTTP for programs.

Nothing here is needed to use the library; only ``cpcapp serve`` imports it.
"""
