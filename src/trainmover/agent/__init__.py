"""One per machine: starts and watches the workers, keeps host-memory copies, relays."""
