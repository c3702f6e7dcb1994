"""The command line: the top of the house.  It may import everything, and nothing imports it.

`main` is the process, `app` the list of commands; a command's own imports stand inside its
function, so that `--help` and completion stay quick.
"""
