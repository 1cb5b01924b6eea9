"""TLS at a job's doors, if it was asked for.

The token says who comes in; the certificate says whose door it is.
"""
