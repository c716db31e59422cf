"""A service's scaling tried on traffic before it is deployed: queue, tasks and control loop simulated, mistakes named.

`reading` reads what scales it out of templates, `model` is what is simulated; the rest tries it, advises, and shows it.
"""
