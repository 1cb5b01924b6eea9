"""A group carried by gloo, and the sockets that it opens."""
