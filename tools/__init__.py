"""Write the pages of docs/ that follow from the code: promises, fields of the declaration, counts and conformance.

What is here reads the code and writes text. Nothing that runs, deploys or judges may import it.
"""
