"""``python -m cpcapp``."""

import sys

from cpcapp.cli import main

if __name__ == "__main__":
    sys.exit(main())
