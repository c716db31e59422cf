"""LocalStack 4.14.0 on this machine, without Docker: started, awaited and stopped as one thing.

From the shell `python -m emulator`, from Python `emulator.localstack.running`.
"""
