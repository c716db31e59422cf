"""A service's scaling tried on traffic before it is deployed: queue, tasks and control loop simulated, mistakes named.

What scales a service, and what AWS does with it, lives in `sluice.rehearse`; how it is shown, in `sluice.rehearse`.
"""
