"""Views for a person in JupyterLab, one file each. The numbers they show come from the rest of the package; nothing is computed twice."""
