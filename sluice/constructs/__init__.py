"""CDK constructs that turn a declaration into CloudFormation: fan-out, services, scaling, alarms, dashboard.

Each construct works in any stack. None imports a stack, boto3 or the runtime. They need the extra `cdk`.
"""
