"""`sluice load`, for spark-submit, which starts a file: `spark-submit … load.py run smoke`."""

import sys

from sluice.cli.main import main

if __name__ == "__main__":
    main(["load", *sys.argv[1:]])
