"""CDK constructs that turn a declaration into CloudFormation: fan-out, services, scaling, alarms, dashboard.

Each works in anybody's stack; none may import a stack, boto3 or the runtime. They need the extra `cdk`.
"""
