"""Write the pages of docs/ that follow from the code: promises, fields of the declaration, counts and conformance.

`cited_tests` reads a clone of LocalStack and writes on which days its tests ran on AWS; a test compares the evidence of
the promises with it.

These modules read the code and write text. Nothing that runs, deploys or judges may import it.
"""
