"""Packages of npm, in a folder of a test's own."""
import os
import shutil
import subprocess


def install(folder, package, script, programs=("node", "npm")):
    """Makes the folder, with the package and a copy of the script that uses it. None, or why that cannot be here."""
    for program in programs:
        if not shutil.which(program):
            return "%s is not installed" % program
    os.mkdir(folder)
    shutil.copy(script, folder)
    try:
        run = subprocess.run(["npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", "cache", package],
                             cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        return "the npm registry did not give us '%s' in time" % package
    return "the npm registry did not give us '%s'" % package if run.returncode != 0 else None
