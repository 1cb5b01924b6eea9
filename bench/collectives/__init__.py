"""Our collectives beside gloo and Open MPI: time of a call, of a switchover, of an abort."""
