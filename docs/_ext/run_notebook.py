"""Runs a notebook in the current folder and keeps its outputs, without what differs from run to run.

usage: python docs/_ext/run_notebook.py NOTEBOOK
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def run(path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(Path.cwd())}}).execute()
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell["id"] = {}, f"cell-{number}"
        for output in cell.get("outputs", ()):
            output.get("metadata", {}).clear()
    nbformat.write(notebook, path)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
