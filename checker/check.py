"""`python checker/check.py thin.cert model-folder`: the checker, without an installation."""

import sys

from certiformer_checker.__main__ import main

sys.exit(main())
