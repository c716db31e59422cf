"""Parts of a load test that run in processes of their own, beside the product's: handlers, and a producer.

`spark_load` names these modules and imports none of them, because a judge shares no code with what it judges.
"""
