"""The command line.  It may import every other package, and nothing imports it.

`main` is the process, `app` the list of commands; a command's own imports are inside its
function, so that `--help` and completion stay quick.
"""
