"""`python -m spark_load`, for spark-submit, which starts a file: `spark-submit … load.py run smoke`."""

from spark_load.__main__ import main

if __name__ == "__main__":
    main()
