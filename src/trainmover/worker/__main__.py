# SPDX-License-Identifier: Apache-2.0
"""Entry of a worker process: `python -m trainmover.worker`, started by an agent."""

from trainmover.worker.process import main

if __name__ == "__main__":
    main()
