"""What belongs to this machine: its working folders, its processes, its health."""
