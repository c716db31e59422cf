"""What this project deploys: the library's stage, `sluice.constructs.stage`, and nothing else so far.

Stacks of your own beside its own go here.
"""
