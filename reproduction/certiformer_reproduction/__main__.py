"""`python -m certiformer_reproduction`"""

import sys

from .command_line import main

sys.exit(main())
