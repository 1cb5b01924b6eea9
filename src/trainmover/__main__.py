# SPDX-License-Identifier: Apache-2.0
"""`python -m trainmover` is `trainmover`."""

import sys

from trainmover.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
