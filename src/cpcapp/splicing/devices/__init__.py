"""Localizing on a GPU: the parts of a localizer that a device can run; needs the extra torch."""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("a device needs torch; install it with: pip install 'cpcapp[torch]'")
