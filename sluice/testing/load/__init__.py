"""What a load test runs in processes of its own, beside the parts of the product: handlers, and a producer.

`spark_load` names these modules and imports none of them, because a judge shares no code with what it judges.
"""
