"""``python -m clop``."""

import sys

from clop.cli import main

sys.exit(main())
