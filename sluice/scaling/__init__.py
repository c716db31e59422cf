"""How many tasks a backlog needs: the expression that the alarms and the scaling policy hold.

Pure arithmetic, without CDK and without AWS.
"""
