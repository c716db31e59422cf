"""A rehearsal tries a service's scaling on traffic before its deployment: it simulates queue, tasks and control loop.

`reading` reads the scaling out of templates, and `model` is the simulation. The other modules try the service, find
mistakes by name, advise, and show the result.
"""
