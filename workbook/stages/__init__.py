"""The command line, DVC and papermill: nowhere else."""
