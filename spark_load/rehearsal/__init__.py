"""`sluice rehearse`: what is read for it, as templates, profiles and recordings, and how it is shown.

What is simulated, and how, lives in `sluice.scaling`; nothing here needs Spark.
"""
