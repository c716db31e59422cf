"""Write the pages of docs/ that follow from the code: promises, fields of the declaration, counts and conformance.

`cited_tests` writes what the evidence of the promises is checked against, from a clone of LocalStack.

What is here reads the code and writes text. Nothing that runs, deploys or judges may import it.
"""
