"""`python -m kernelgen`: the same command, where its script is not on the path."""

import sys

from kernelgen.cli import main

sys.exit(main())
